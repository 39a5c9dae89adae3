"""``kretain advise``, ``forecast`` and ``profile``: what topics hold, will hold and should."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from kretain.config import context_of, resolve
from kretain.errors import Exit, UsageError
from kretain.flows.fleet import each_cluster
from kretain.flows.spark import SharedSpark, record_reader
from kretain.options.common import (
    Common,
    OutputOption,
    TimeRange,
    duration_ms,
    now_ms,
    option,
    single_command,
    size_bytes,
)
from kretain.options.plans import (
    RuleFlags,
    SparkFlags,
    Topics,
    selection_of,
    topic_argument,
)

WISH = "Goals (default: the policy, else retention.ms)"


@single_command
@each_cluster
def advise(
    common: Common,
    topics: Topics = None,
    want: Annotated[
        int | None,
        option("--want", metavar="DURATION", panel=WISH, parser=duration_ms, help="Keep data this long."),
    ] = None,
    want_bytes: Annotated[
        int | None,
        option(
            "--want-bytes",
            metavar="SIZE",
            panel=WISH,
            parser=size_bytes,
            help="Keep at most this much per topic (one replica of all partitions).",
        ),
    ] = None,
    min_segment: Annotated[
        int,
        option(
            "--min-segment",
            metavar="DURATION",
            panel=WISH,
            parser=duration_ms,
            help="Never advise a smaller segment.ms than this.",
        ),
    ] = "1m",  # type: ignore[assignment]  # typer parses it like a typed value
    output: OutputOption = "table",
    all_rows: Annotated[bool, option("--all", help="Show all topics and lines.")] = False,
) -> None:
    """Show how long brokers really keep data, what endangers it, and better settings.

    Uses live settings and the last day's traffic. Changes nothing. With a policy file, also checks its times. In JSON,
    times are in ms, sizes in bytes, and unknown values null.

    Examples:
      kretain advise -b localhost:9092 'orders.*'

      kretain advise -b localhost:9092 orders --want 12h --min-segment 1d

      kretain advise -p policy.yaml -o json | jq -r '.topics[].advice.kafka_configs // empty'
    """
    from kretain.render.advise import print_advice
    from retention_cli.advise.advice import advise as judge
    from retention_cli.advise.facts import Demand
    from retention_cli.advise.reading import read_topics

    settings = resolve(common)
    policy = settings.load()
    with settings.reader() as reader, common.progress() as progress:
        reading = read_topics(reader, tuple(topics or ()), policy, now_ms, progress)
    found = [
        judge(topic, Demand(want, want_bytes, min_segment, reading.policies.get(topic.name)), reading.now_ms)
        for topic in reading.topics
    ]
    common.warn(*reading.notes)
    for_java = None if settings.settings().protocol == "PLAINTEXT" else settings.file or "client.properties"
    print_advice(reading, found, output, command_config=for_java, every_row=all_rows)


@single_command
@each_cluster
def forecast(
    common: Common,
    flags: RuleFlags,
    topics: Topics = None,
    compare: Annotated[
        Path | None,
        option(
            "--compare",
            metavar="FILE",
            help="Compare with this policy. Default with -p: the context's policy.",
        ),
    ] = None,
    every: Annotated[
        int,
        option("--every", metavar="DURATION", parser=duration_ms, help="Assume a trim this often."),
    ] = "5m",  # type: ignore[assignment]  # typer parses it like a typed value
    least: Annotated[
        int,
        option(
            "--least",
            metavar="DURATION",
            parser=duration_ms,
            help="Measure rates over at least this long.",
        ),
    ] = "1h",  # type: ignore[assignment]
    output: OutputOption = "table",
    all_rows: Annotated[bool, option("--all", help="Show all topics and groups.")] = False,
) -> None:
    """Forecast what the policy keeps, when disks are full, and who loses data next.

    Uses the samples that each plan and trim adds to the ledger. Anything that depends on an unknown rate is unknown.
    Changes nothing.

    Examples:
      kretain forecast -p policy.yaml

      kretain forecast -p new.yaml --compare policy.yaml

      kretain forecast '*' --consumed-after 3d -b localhost:9092

      kretain forecast -p policy.yaml -o json | jq '.groups[] | select((.seconds_to_loss // infinite) < 86400)'
    """
    from kretain.flows.plans import forecasts
    from kretain.render.forecast import print_forecast
    from retention_cli.forecast.steady import Terms

    settings = resolve(common)
    if compare is None and common.chosen is None and settings.policy is not None:
        of_context = context_of(common.context)[0].get("policy")
        if of_context is not None and Path(of_context).resolve() != settings.policy.resolve():
            compare = Path(of_context)
    chosen = [selection_of(settings.policy, topics, flags.for_topics(topics))]
    if compare is not None:
        chosen.append(selection_of(compare, topics))
    terms = Terms(every, least, now_ms())
    with settings.reader() as reader, common.progress() as progress:
        made = forecasts(settings, reader, chosen, terms, progress)
    common.warn(*dict.fromkeys(note for one in made for note in one.notes))
    print_forecast(made[0], made[1] if compare is not None else None, output, every_row=all_rows)


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
            help="Use event times from the policy's retention.eventtime.source.",
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

    Reads every record from the log start to the current end; changes nothing. Sizes are of uncompressed keys, values
    and headers. Ctrl-C shows what was read so far.

    Examples:
      kretain profile orders -b localhost:9092

      kretain profile 'orders.*' --last 7d --out profile.parquet

      kretain profile orders -p policy.yaml --by-event-time -o json | jq '.topics[].out_of_order'

      kretain profile '*' --spark --master spark://master:7077 --out profile.parquet
    """
    from kretain.render.profile import print_profile, profile_notes
    from kretain.system.signals import Ending
    from retention_cli.core.files import atomic_path
    from retention_cli.profile.reading import Wanted, all_rows, fill, head, prepare, write_parquet

    shared = SharedSpark(spark)
    now = now_ms()
    settings = resolve(common)
    from_ms, to_ms = times.bounds(now)
    check_out(out)
    policy = settings.load()
    if policy is None and by_event_time:
        raise UsageError("--by-event-time needs a policy (-p FILE): its retention.eventtime.source says where they are")
    wanted = Wanted(tuple(topics), now, policy, by_event_time, from_ms, to_ms)
    with settings.reader() as reader, common.progress() as progress, shared:
        found = prepare(reader, wanted, progress)
        read = record_reader(shared, reader, found, progress)
        with Ending(holding=True).heard() as ending:
            fill(reader, found, progress, lambda: ending.requested, read)
    if out is not None:
        with atomic_path(out) as scratch:
            write_parquet(scratch, head(found), all_rows(found.topics.values()))
    common.warn(*profile_notes(found, out))
    print_profile(found, output, of_bytes=of_bytes)
    if found.unread and not found.interrupted:
        return Exit.PARTIAL if found.ranges else Exit.FAILED
    return Exit.INTERRUPTED if found.interrupted else Exit.DONE


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
