"""``kretain cluster init``."""

from __future__ import annotations

from typing import Annotated

from kretain.errors import Exit, tell_error
from kretain.options.common import Common, OutputOption, command, new_app, option

app = new_app("Create kretain's own topics in a cluster.")


@app.callback()
def cluster() -> None:
    """Create kretain's own topics in a cluster."""


@command(app)
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
    protect: Annotated[
        bool,
        option("--protect", help="Create _kretain_protected, too, for kretain protect."),
    ] = False,
    dry_run: Annotated[bool, option("--dry-run", help="Show what would be created; create nothing.")] = False,
    yes: Annotated[bool, option("--yes", "-y", help="Skip the question. Required without a terminal.")] = False,
    output: OutputOption = "table",
) -> Exit:
    """Create the topics _kretain_policy and _kretain_state.

    They hold live settings and, with state: cluster, the shared ledger. Asks first, and changes nothing else. Run it
    again at any time. Exits with 1 if an existing topic has wrong settings.

    Examples:
      kretain cluster init -b localhost:9092 --dry-run

      kretain cluster init -b localhost:9092

      kretain cluster init -b localhost:9092 --protect

      kretain cluster init -c admin.properties --replication-factor 3 --yes
    """
    from kretain.config import resolve
    from kretain.flows.trims import must_confirm
    from kretain.render.setup import print_own_topics
    from retention_cli.brokers.writer import ClusterWriter
    from retention_cli.state.own_topics import OWN_TOPICS, PROTECTED_TOPIC, initialize

    with resolve(common, policy_counts=False).reader() as reader:
        cluster_id, bootstrap = reader.metadata([]).cluster_id, reader.settings.bootstrap
        own = (*OWN_TOPICS, PROTECTED_TOPIC) if protect else OWN_TOPICS
        topics = list(initialize(reader, None, replication_factor, own))
        missing = [one.topic for one in topics if one.outcome == "missing"]
        if missing and not dry_run:
            must_confirm(
                lambda: f"Create {' and '.join(missing)} in cluster {cluster_id} ({bootstrap})?",
                "create topics, or --dry-run to look",
                "nothing was created",
                yes=yes,
            )
            with ClusterWriter(reader.settings, own, reader.timeout_s) as writer:
                topics = list(initialize(reader, writer, replication_factor, own))
    print_own_topics(cluster_id, bootstrap, topics, output)
    problems = [] if dry_run else [one.problem for one in topics if one.problem is not None]
    for problem in problems:
        tell_error(Exit.FAILED, "failed", problem)
    return Exit.FAILED if problems else Exit.DONE
