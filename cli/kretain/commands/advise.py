"""``kretain advise``."""

from __future__ import annotations

from typing import Annotated

from kretain.flows.fleet import each_cluster
from kretain.options.common import (
    Common,
    OutputOption,
    duration_ms,
    now_ms,
    option,
    single_command,
    size_bytes,
)
from kretain.options.rules import Topics

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

    Uses live settings and the last day's traffic. Changes nothing. With a policy file, also judges its times. In JSON,
    times are in ms, sizes in bytes, and unknown values null.

    Examples:
      kretain advise -b localhost:9092 'orders.*'

      kretain advise -b localhost:9092 orders --want 12h --min-segment 1d

      kretain advise -p policy.yaml -o json | jq -r '.topics[].advice.kafka_configs // empty'
    """
    from kretain.config import resolve
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
    given = (value for key, value, _ in settings.origins if key == "command-config")
    for_java = None if settings.settings().protocol == "PLAINTEXT" else next(given, "client.properties")
    print_advice(reading, found, output, command_config=for_java, every_row=all_rows)
