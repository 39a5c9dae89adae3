"""``kretain init``, ``doctor``, ``context``, ``cluster`` and ``completion``: set kretain up, and check a cluster."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from kretain.completion.complete import complete_contexts
from kretain.completion.quick import QuickCommand
from kretain.config import Resolved, config_path, context_of, contexts, default_context, resolve
from kretain.errors import Exit, UsageError, tell_error
from kretain.flows.confirm import answer, must_confirm, on_terminal
from kretain.flows.fleet import each_cluster
from kretain.options.common import CONNECTION, Common, OutputOption, argument, command, new_app, option, single_command
from kretain.options.plans import Topics
from kretain.texts import recipe, write_new
from retention_cli.core.units import count

if TYPE_CHECKING:
    from retention_cli.plan.value import Plan
    from retention_cli.policy.model import Policy


_NAME: Final = "main"
"""The context's name, where --context does not give one."""
_EXAMPLE: Final = "orders"


@dataclass(frozen=True, slots=True)
class _NewCluster(Common):
    """The common options: two name what is written."""

    context: Annotated[
        str | None, option("--context", metavar="NAME", panel=CONNECTION, help="Name the new context.")
    ] = None
    policy: Annotated[Path | None, option("--policy", "-p", metavar="FILE", help="Write the policy here.")] = None


@single_command
def init(
    common: _NewCluster,
    yes: Annotated[bool, option("--yes", "-y", help="Skip the questions. Required without a terminal.")] = False,
) -> Exit:
    """Check a cluster, write config.yaml and policy.yaml, show a first plan.

    Asks for a broker, or takes -b and -c. Deletes nothing, and overwrites no file. The policy covers topics that have a
    group. It trims what every group has read, 3 days after it was written, and holds for the first 3 days. -p names the
    policy file, --context the cluster. Without a terminal it cannot ask: pass -b and --yes.

    Examples:
      kretain init

      kretain init -b broker-1:9092 -c client.properties

      kretain init -b localhost:9092 --context lab --yes
    """
    from kretain.flows.config_file import add_context
    from kretain.render.output import say
    from kretain.render.plan import print_plan
    from retention_cli.policy.load import load_policy

    name, config = common.context or _NAME, config_path()
    policy = (common.policy or config.parent / "policy.yaml").expanduser().absolute()
    _require_new(config, "to add a cluster: kretain context add NAME -b HOST:PORT")
    _require_new(policy, "name another file with -p")
    common = replace(_with_broker(common, yes=yes), policy=policy, context=None)
    settings = replace(resolve(replace(common, chosen=({}, "init"))), policy=None)
    if not _works(settings, common):
        tell_error(
            Exit.FAILED,
            "failed",
            "a plan cannot work here; nothing was written",
            "fix what ✗ names, then run init again",
        )
        return Exit.FAILED
    topics = _topics(settings, common)
    must_confirm(
        lambda: f"Write {config} and {policy}?", "write config.yaml and policy.yaml", "nothing was written", yes=yes
    )
    write_new(policy, _policy(topics))
    add_context(name, common)
    say(f"Wrote {config} (context {name}) and {policy}.")
    if not topics:
        say(
            "No topic qualifies: none has both a consumer group and a finite retention.ms of 3 days or more. "
            f'Replace the example topic "{_EXAMPLE}" in {policy.name}, then run: kretain plan'
        )
        return Exit.DONE
    say()
    print_plan(
        _plan(resolve(Common(context=name, quiet=common.quiet)), common, load_policy(policy)), "table", every_row=False
    )
    common.warn("nothing was trimmed. Edit the policy, and run kretain plan every day, or kretain watch")
    return Exit.DONE


def _require_new(path: Path, otherwise: str) -> None:
    from retention_cli.core.errors import hinted
    from retention_cli.core.files import FileError

    if path.exists() or path.is_symlink():
        raise hinted(FileError(f"{path} already exists, and is not overwritten; {otherwise}"), "")


def _with_broker(common: _NewCluster, *, yes: bool) -> _NewCluster:
    """Return the options with a cluster; in a terminal, ask for one.

    Raises:
        UsageError: an option is missing, and there is no terminal to ask on.
    """
    named = common.bootstrap_server is not None or common.command_config is not None
    if not on_terminal() and (missing := [*([] if named else ["-b HOST:PORT"]), *([] if yes else ["--yes"])]):
        raise UsageError(f"no terminal to ask on: give {' and '.join(missing)}; nothing was written")
    if named:
        return common
    broker = answer("A broker of the cluster, HOST:PORT [localhost:9092]:") or "localhost:9092"
    return replace(common, bootstrap_server=broker)


def _works(settings: Resolved, common: Common) -> bool:
    """Print the problems that doctor finds, and return whether a plan can work."""
    from kretain.render.output import say
    from retention_cli.reports.doctor import diagnose

    with settings.reader() as reader, common.progress():
        found = diagnose(reader, settings.state_dir, lambda _topic: True)
    good = [one for one in found.checks if one.verdict == "good"]
    say(f"Cluster {found.cluster_id}: {count(len(good), 'check')} passed.")
    for one in found.checks:
        if one.verdict != "good":
            say(f"{'✗' if one.verdict == 'missing' else '!'} {one.name}: {one.text}")
    return found.commands()["plan"] != "missing"


def _policy(topics: list[str]) -> str:
    return recipe("init").replace(
        " [TOPICS]", "".join(f"\n      - {json.dumps(name)}" for name in topics or [_EXAMPLE])
    )


def _topics(settings: Resolved, common: Common) -> list[str]:
    """Return the topics that R1 may be used for: a group has committed, and brokers keep 3 days, but not forever."""
    from retention_cli.brokers.metadata import TopicConfig
    from retention_cli.core.model import INFINITE_MS
    from retention_cli.policy.load import parse_policy
    from retention_cli.policy.selection import NothingMatchesError

    everything = parse_policy(_policy(["*"]), "init", "init")
    try:
        rows = _plan(settings, common, everything).decisions
    except NothingMatchesError:
        return []
    unfit = {row.topic for row in rows if any(reason.code == "R1" for reason in row.reasons)}
    names = {row.topic for row in rows if row.min_commit is not None and row.action != "skip"} - unfit
    with settings.reader() as reader:
        configs = reader.topic_configs(sorted(names)) if names else {}
    return [
        name
        for name, one in configs.items()
        if isinstance(one, TopicConfig)
        and "delete" in one.cleanup_policy
        and one.retention_ms != INFINITE_MS
        and not one.tiered
    ]  # since Kafka 4.2 cleanup.policy may be empty: brokers keep such a topic forever, too


def _plan(settings: Resolved, common: Common, policy: Policy) -> Plan:
    from kretain.flows.plans import plan_now
    from retention_cli.plan.make import LocalPlanner
    from retention_cli.policy.selection import Selection

    with settings.reader() as reader, common.progress() as progress:
        return plan_now(
            settings, reader, Selection(policy), LocalPlanner().plan, settings.memories(reader, policy.state), progress
        )


@single_command
@each_cluster
def doctor(
    common: Common,
    topics: Topics = None,
    output: OutputOption = "table",
) -> Exit:
    """Check permissions, broker versions and the clock; name what each command lacks.

    Changes nothing. Exits with 1 if plan or trim cannot work. TOPIC limits the check to these topics.

    Examples:
      kretain doctor -b localhost:9092

      kretain doctor -c client.properties -p policy.yaml -o json
    """
    from kretain.render.setup import print_diagnosis
    from retention_cli.policy.model import matches
    from retention_cli.reports.doctor import diagnose

    settings = resolve(common)
    policy = settings.load()

    with settings.reader() as reader:
        found = diagnose(
            reader,
            settings.state_dir,
            lambda name: (
                (not topics or matches(topics, name)) and (policy is None or policy.settings_for(name) is not None)
            ),
            policy,
            named=bool(topics),
        )
    print_diagnosis(found, output)
    verdicts = found.commands()
    return Exit.FAILED if "missing" in (verdicts["plan"], verdicts["trim"]) else Exit.DONE


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
class _NewContext(Common):
    """The common options: one is stored."""

    policy: Annotated[
        Path | None, option("--policy", "-p", metavar="FILE", help="Use this policy file in the context.")
    ] = None


@command(context)
def add(
    common: _NewContext,
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


@command(cluster, "init")
def init_topics(
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
            with ClusterWriter(reader.pinned_settings, own, reader.timeout_s) as writer:
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
