"""``kretain context``, ``cluster`` and ``completion``: what kretain is set up with."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from kretain.completion.complete import complete_contexts
from kretain.completion.quick import QuickCommand
from kretain.config import config_path, context_of, contexts, default_context, resolve
from kretain.errors import Exit, tell_error
from kretain.flows.confirm import must_confirm
from kretain.options.common import Common, OutputOption, argument, command, new_app, option

context = new_app("List, add and remove the clusters in config.yaml; choose the default.")

Name = Annotated[str, argument(metavar="NAME", help="The context.", autocompletion=complete_contexts)]
DryRun = Annotated[bool, option("--dry-run", help="Show what would change; write nothing.")]


@command(context, name="list")
def list_all(_common: Common, output: OutputOption = "table") -> None:
    """List the contexts in config.yaml. Needs no cluster.

    Examples:
      kretain context list

      kretain context list -o json
    """
    from kretain.render.setup import print_contexts

    print_contexts(config_path(), contexts(), default_context(), output)


@command(context)
def show(
    common: Common,
    name: Annotated[
        str | None,
        argument(metavar="NAME", help="The context. Default: the default context.", autocompletion=complete_contexts),
    ] = None,
    output: OutputOption = "table",
) -> None:
    """Show what a context sets, without its secrets. Needs no cluster.

    Examples:
      kretain context show prod
    """
    from kretain.render.setup import print_context

    entry, where = context_of(name or common.context)
    print_context(config_path(), where.partition(" ")[2], entry, output)


@command(context)
def use(common: Common, name: Name) -> None:
    """Make a context the default in config.yaml.

    Examples:
      kretain context use staging
    """
    from kretain.flows.config_file import use_context

    use_context(name)
    common.warn(f"{name} is now the default context ({config_path()})")


@dataclass(frozen=True, slots=True)
class _New(Common):
    """The common options: one is stored."""

    policy: Annotated[
        Path | None, option("--policy", "-p", metavar="FILE", help="Use this policy file in the context.")
    ] = None


@command(context)
def add(
    common: _New,
    name: Annotated[str, argument(metavar="NAME", help="The new context.")],
    *,
    dry_run: DryRun = False,
) -> None:
    """Add a cluster to config.yaml: -b, -c, -p, --state-dir and --timeout.

    Keeps comments and order. The first context becomes the default. Needs no cluster. Exits with 1 if NAME exists.

    Examples:
      kretain context add lab -b localhost:9092

      kretain context add prod -b broker-1:9092 -c prod.properties -p prod.yaml

      kretain context add lab -b localhost:9092 --dry-run
    """
    from kretain.flows.config_file import add_context

    add_context(name, common, dry_run=dry_run)
    common.warn(
        f"{name} would be added to {config_path()}; nothing was written"
        if dry_run
        else f"added {name} to {config_path()}; to check it: kretain doctor --context {name}"
    )


@command(context)
def remove(common: Common, name: Name, *, dry_run: DryRun = False) -> None:
    """Remove a cluster from config.yaml. Keeps its files and its ledger.

    Examples:
      kretain context remove lab
    """
    from kretain.flows.config_file import remove_context

    was_default = remove_context(name, dry_run=dry_run)
    which = ", the default context," if was_default else ""
    hint = "; no context is the default now: choose one with kretain context use NAME" if was_default else ""
    common.warn(
        f"{name}{which} would be removed from {config_path()}; nothing was written"
        if dry_run
        else f"removed {name} from {config_path()}{hint}"
    )


cluster = new_app("Create kretain's own topics in a cluster.")


@cluster.callback()
def _cluster() -> None:
    """Create kretain's own topics in a cluster."""


@command(cluster)
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
        option("--protect", help="Also create _kretain_protected, for kretain protect."),
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


completion = new_app()


@completion.command(cls=QuickCommand)
def _completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a shell's completion script (--install-completion installs it).

    Examples:
      source <(kretain completion bash)

      kretain completion fish > ~/.config/fish/completions/kretain.fish
    """
    from kretain.completion.shells import SCRIPTS

    sys.stdout.write(SCRIPTS[shell].strip() + "\n")
