"""``kretain profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from kretain.errors import Exit, UsageError
from kretain.flows.spark import record_reader
from kretain.options.common import (
    Common,
    OutputOption,
    TimeRange,
    now_ms,
    option,
    single_command,
)
from kretain.options.plans import SparkFlags
from kretain.options.rules import topic_argument


@single_command
def profile(
    common: Common,
    topics: Annotated[
        list[str],
        topic_argument("Name, glob ('orders.*') or re:^…$."),
    ],
    times: TimeRange = TimeRange(),  # noqa: B008  (a frozen value)
    by_event_time: Annotated[
        bool,
        option(
            "--by-event-time",
            "--event-time",
            help="Use event times; the policy's retention.eventtime.source says where.",
        ),
    ] = False,
    of_bytes: Annotated[bool, option("--bytes", help="Draw bytes instead of records.")] = False,
    out: Annotated[
        Path | None, option("--out", of="profile", metavar="FILE", help="Save hourly counts per partition as Parquet.")
    ] = None,
    output: OutputOption = "table",
    spark: SparkFlags = SparkFlags(),  # noqa: B008  (a frozen value)
) -> Exit:
    """Read a topic's records and draw them over time: rates, order, future times.

    Reads every record from the log start to the current end; changes nothing. Sizes are keys, values and headers,
    uncompressed. Ctrl-C shows what was read so far.

    Examples:
      kretain profile orders -b localhost:9092

      kretain profile 'orders.*' --last 7d --out profile.parquet

      kretain profile orders -p policy.yaml --by-event-time -o json | jq '.topics[].out_of_order'

      kretain profile '*' --spark --master spark://master:7077 --out profile.parquet
    """
    from kretain.config import resolve
    from kretain.render.profile import print_profile, profile_notes
    from kretain.system.signals import stoppable
    from retention_cli.core.files import whole
    from retention_cli.profile.reading import Wanted, fill, prepare
    from retention_cli.profile.rows import all_rows, head, write_parquet

    spark.check()
    now = now_ms()
    settings = resolve(common)
    from_ms, to_ms = times.bounds(now)
    check_out(out)
    policy = settings.load()
    if policy is None and by_event_time:
        raise UsageError("--by-event-time needs a policy (-p FILE): its retention.eventtime.source says where they are")
    wanted = Wanted(tuple(topics), now, policy, by_event_time, from_ms, to_ms)
    with settings.reader() as reader, common.progress() as progress:
        found = prepare(reader, wanted, progress)
        with record_reader(spark, reader, found, progress) as read, stoppable() as stop:
            fill(reader, found, progress, stop, read)
    if out is not None:
        with whole(out) as scratch:
            write_parquet(scratch, head(found), all_rows(found.topics.values()))
    common.warn(*profile_notes(found, out))
    print_profile(found, output, of_bytes=of_bytes)
    if found.interrupted:
        return Exit.INTERRUPTED
    if found.unread:
        return Exit.PARTIAL if found.ranges else Exit.FAILED
    return Exit.DONE


def check_out(out: Path | None) -> None:
    """Check the output path before an hour of reading, not after it."""
    if out is None:
        return
    from retention_cli.core.extras import arrow

    arrow()
    if out.suffix != ".parquet":
        raise UsageError(f"--out writes Parquet: name it {out.stem or 'profile'}.parquet")
    if out.is_dir() or not out.parent.is_dir():
        raise UsageError(f"--out {out}: {'it is a folder' if out.is_dir() else f'there is no folder {out.parent}'}")
