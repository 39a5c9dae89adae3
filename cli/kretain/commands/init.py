"""``kretain init``."""

from __future__ import annotations

from typing import Annotated

from kretain.errors import Exit, tell_error
from kretain.options.common import COMMON, Common, Output, option, single_command


@single_command
def init(
    common: Common,
    replication_factor: Annotated[
        int | None,
        option(
            "--replication-factor",
            metavar="N",
            min=1,
            max=32_767,
            help="Copies of each topic. Default: 3, or as many as there are brokers.",
        ),
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", help="Say what would be made, and make nothing.")] = False,
    output: Annotated[Output, option("--output", "-o", panel=COMMON, help="How to print it.")] = "table",
) -> Exit:
    """Make the two topics that live settings and state: cluster need; say what is there already.

    _kretain_policy holds settings that are moved while everything runs, _kretain_state what kretain remembers.
    Nothing else is changed, and a second run changes nothing. Exits with 1 if a topic is there and wrong.

    [bold]Examples[/bold]

      kretain init -b localhost:9092 --dry-run

      kretain init -b localhost:9092

      kretain init -c admin.properties --replication-factor 3
    """
    from kretain.config import resolve
    from kretain.render.setup import print_own_topics
    from retention_cli.brokers.writer import ClusterWriter
    from retention_cli.state.own_topics import OWN_TOPICS, initialize, look

    settings = resolve(common, policy_counts=False)
    if dry_run:
        with settings.reader() as reader:
            print_own_topics(
                reader.metadata([]).cluster_id,
                reader.settings.bootstrap,
                list(look(reader, replication_factor)),
                output,
            )
        return Exit.DONE
    with settings.reader() as reader, ClusterWriter(reader.settings, OWN_TOPICS, reader.timeout_s) as writer:
        cluster_id = reader.metadata([]).cluster_id
        topics = list(initialize(reader, writer, replication_factor))
    print_own_topics(cluster_id, reader.settings.bootstrap, topics, output)
    problems = [one.problem for one in topics if one.problem is not None]
    for problem in problems:
        tell_error(Exit.FAILED, "failed", problem)
    return Exit.FAILED if problems else Exit.DONE
