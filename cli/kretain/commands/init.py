"""``kretain init``."""

from __future__ import annotations

from typing import Annotated

from kretain.errors import Exit, tell_error
from kretain.options.common import Common, OutputOption, option, single_command


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
            help="Set the replicas of each topic. Default: 3, or all brokers if fewer.",
        ),
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", help="Show what would be created; create nothing.")] = False,
    output: OutputOption = "table",
) -> Exit:
    """Create the topics _kretain_policy and _kretain_state.

    They hold live settings and, with state: cluster, the shared ledger. Changes nothing else; run it again at any time.
    Exits with 1 if an existing topic has wrong settings.

    Examples:
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
