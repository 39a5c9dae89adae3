"""The options that say which topics are planned by which rules, over Spark or not, and what happens with the plan."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kretain.completion.complete import complete_groups, complete_partitions, complete_topics
from kretain.errors import Exit, UsageError, worst
from kretain.options.common import (
    COMMON,
    AllPartitions,
    OptionGroup,
    OutputOption,
    PlanOutputOption,
    duration_ms,
    option,
    time_ms,
)
from retention_cli.core.model import TopicPartition
from retention_cli.core.printable import shown
from retention_cli.policy.settings import OneOff

if TYPE_CHECKING:  # importing these is slow, and --help must be fast
    from retention_cli.disks.inventory_view import InventoryView
    from retention_cli.plan.approval import Offered
    from retention_cli.plan.value import Plan, Totals
    from retention_cli.policy.model import Policy
    from retention_cli.policy.selection import Selection

ONE_OFF = "Rules for this run (the policy's guards and limits stay)"
_LAST_MS = 2**63 - 1
_LONGEST_NUMBER = 10


def group_patterns(given: list[str] | None) -> list[str] | None:
    """Check names, globs and ``re:`` expressions of groups, one of which may be called ``''``."""
    patterns([one for one in given or () if one])
    return given


def patterns(given: list[str] | None) -> list[str] | None:
    """Check names, globs and ``re:`` expressions on the command line: the callback of each argument with patterns."""
    from retention_cli.policy.model import PatternError, compiled

    for pattern in given or ():
        if not pattern:
            raise typer.BadParameter("it is empty")
        try:
            compiled(pattern)
        except PatternError as error:
            raise typer.BadParameter(str(error)) from None
    return given


def topic_argument(help_: str, metavar: str = "TOPIC", complete: Callable[..., Any] = complete_topics) -> Any:
    """Return an argument of names, globs and ``re:`` expressions of topics, which it checks."""
    return typer.Argument(metavar=metavar, show_default=False, autocompletion=complete, callback=patterns, help=help_)


_OF_THE_POLICY = "Name, glob ('orders.*') or re:^…$. Default: the policy's."
Topics = Annotated[list[str] | None, topic_argument(_OF_THE_POLICY)]
PartedTopics = Annotated[list[str] | None, topic_argument(_OF_THE_POLICY, "TOPIC[:PARTITION]", complete_partitions)]


@dataclass(frozen=True, slots=True)
class TopicArguments:
    """TOPIC arguments: names and patterns, and the partitions given with some names (None: no arguments)."""

    topics: list[str] | None
    partitions: frozenset[TopicPartition] = frozenset()

    @property
    def unsplit(self) -> list[str]:
        """The topics, and patterns, given without a partition."""
        parted = {one.topic for one in self.partitions}
        return [one for one in self.topics or () if one not in parted]

    def check_one_cluster(self) -> None:
        """Raise UsageError if partitions are named: across clusters, a topic may have different ones in each."""
        if self.partitions:
            raise UsageError("TOPIC:PARTITION is for one cluster: name it with --cluster NAME, or --context")


def topic_arguments(given: list[str] | None) -> TopicArguments:
    """Return the TOPIC and TOPIC:PARTITION arguments. A topic also given without a partition means all of it.

    Raises:
        UsageError: the text after a colon is not a partition number, or the text before it is not a name.
    """
    if given is None:
        return TopicArguments(None)
    parsed = [(text, None) if text.startswith("re:") else topic_partition(text) for text in given]
    without_partition = {name for name, partition in parsed if partition is None}
    return TopicArguments(
        list(dict.fromkeys(name for name, _ in parsed)),
        frozenset(
            {
                TopicPartition(name, number)
                for name, number in parsed
                if number is not None and name not in without_partition
            }
        ),
    )


def topic_partition(text: str) -> tuple[str, int | None]:
    """Return a TOPIC or TOPIC:PARTITION argument's two parts.

    Raises:
        UsageError: the text after the colon is not a partition number, or the text before it is not a name.
    """
    name, colon, number = text.partition(":")
    if not colon:
        return text, None
    if not (number.isascii() and number.isdigit() and len(number) <= _LONGEST_NUMBER):
        raise UsageError(f"{text!r}: {number!r} is not a partition number")
    if not name or any(sign in name for sign in "*?["):
        raise UsageError(f"{text!r}: a partition needs the full name of its topic")
    return name, int(number)


@dataclass(frozen=True, slots=True)
class RuleFlags(OptionGroup):
    """The one-off rules."""

    consumed_after: Annotated[
        int | None,
        option(
            "--consumed-after",
            metavar="DURATION",
            panel=ONE_OFF,
            parser=duration_ms,
            help="Trim older records that all consumers read (R1).",
        ),
    ] = None
    event_time: Annotated[
        int | None,
        option(
            "--event-time",
            metavar="DURATION",
            panel=ONE_OFF,
            parser=duration_ms,
            help="Trim records this far behind the newest one (R2).",
        ),
    ] = None
    before: Annotated[
        int | None,
        option(
            "--before",
            metavar="TIME",
            panel=ONE_OFF,
            parser=time_ms,
            help="Trim records stamped before this time (R3).",
        ),
    ] = None
    older_than: Annotated[
        int | None,
        option(
            "--older-than",
            metavar="DURATION",
            panel=ONE_OFF,
            parser=duration_ms,
            help="Trim older records (R4), unless unread (G2).",
        ),
    ] = None
    unconsumed: Annotated[
        Literal["hold", "trim"] | None,
        option("--unconsumed", panel=ONE_OFF, help="Hold or trim unread records. Default: hold."),
    ] = None

    def for_topics(self, topics: list[str] | None) -> OneOff:
        """Return the flags as the engine's value.

        Raises:
            UsageError: --before is a time that Kafka can't represent.
        """
        if self.before is not None and self.before > _LAST_MS:
            raise UsageError(f"--before: {shown(self.before)} is not a time in Unix ms")
        return OneOff(
            patterns=tuple(topics or ()),
            consumed_after_ms=self.consumed_after,
            older_than_ms=self.older_than,
            event_time_ms=self.event_time,
            before_ms=self.before,
            unconsumed=self.unconsumed,
        )


GroupsOption = Annotated[
    list[str] | None,
    option(
        "--group",
        metavar="GROUP",
        help="Show only these groups (names or globs). Repeatable.",
        autocompletion=complete_groups,
        callback=group_patterns,
    ),
]


def selection_or_all(policy_file: Path | None, topics: list[str] | None) -> Selection:
    """Return the selection of a command that decides nothing: without a policy, every named topic, or all.

    Raises:
        PolicyError: the file is invalid.
    """
    from retention_cli.policy.model import Entry, Policy
    from retention_cli.policy.selection import Selection

    if policy_file is not None:
        return selection_of(policy_file, topics)
    return Selection(
        Policy(source="no policy", digest="", entries=(Entry(None, tuple(topics or ("*",)), {}),)),
        tuple(topics or ()),
    )


def selection_of(
    policy_file: Path | None,
    topics: list[str] | None = None,
    flags: OneOff = OneOff(),  # noqa: B008  (a frozen value)
    partitions: frozenset[TopicPartition] = frozenset(),
) -> Selection:
    """Return the policy overridden by the flags, and the selected topics and partitions.

    Raises:
        UsageError: there is neither a policy file nor a one-off rule with a TOPIC.
        PolicyError: the file is invalid.
    """
    from retention_cli.policy.selection import Selection

    if policy_file is not None:
        from retention_cli.policy.load import load_policy

        policy = load_policy(policy_file)
    else:
        if not flags.any_trigger:
            raise UsageError(
                "no policy: give -p FILE (or KRETAIN_POLICY, or a context that names one), or a TOPIC with a one-off "
                "rule such as --consumed-after 3d"
            )
        if not topics:
            raise UsageError("a one-off rule without a policy file needs a TOPIC (a glob; '*' for all)")
        policy = flags_alone(flags)
    return Selection(policy.with_one_off(flags), tuple(topics or ()), partitions)


def flags_alone(flags: OneOff) -> Policy:
    """Return a policy made of the flags alone."""
    import hashlib

    from retention_cli.plan.value import NO_FILE
    from retention_cli.policy.model import Policy

    digest = hashlib.sha256(json.dumps([flags.flags(), flags.patterns], sort_keys=True).encode()).hexdigest()
    return Policy(source=NO_FILE, digest=f"sha256:{digest}")


SPARK = "Spark"
Inventories = Annotated[
    list[Path] | None,
    option(
        "--inventory",
        metavar="FILE",
        help="Read this inventory (segments scan). Repeatable.",
    ),
]


@dataclass(frozen=True, slots=True)
class TrimFlags(OptionGroup):
    """How to carry a plan out, and how to print the report."""

    plan: Annotated[
        Path | None,
        option("--plan", of="trim", metavar="FILE", help="Carry out this saved plan, or less of it."),
    ] = None
    approval: Annotated[
        Path | None,
        option("--approval", metavar="FILE", panel=COMMON, help="Use this approval, not FILE.approval of --plan."),
    ] = None
    dry_run: Annotated[bool, option("--dry-run", help="Do everything except delete.")] = False
    yes: Annotated[bool, option("--yes", "-y", help="Skip the question. Required without a terminal.")] = False
    max_age: Annotated[
        int,
        option(
            "--max-age",
            metavar="DURATION",
            parser=duration_ms,
            help="Refuse an older saved plan. Default: 1h.",
            show_default=False,
        ),
    ] = "1h"  # type: ignore[assignment]  # (the option's parser reads it)
    max_partitions: Annotated[
        int | None, option("--max-partitions", metavar="N", min=1, help="Trim at most this many partitions.")
    ] = None
    wait_lock: Annotated[
        int,
        option(
            "--wait-lock",
            metavar="DURATION",
            parser=duration_ms,
            help="Wait this long for another trim. Default: 0s.",
            show_default=False,
        ),
    ] = "0s"  # type: ignore[assignment]  # (the option's parser reads it)
    wait: Annotated[
        bool,
        option("--wait", help="Wait until brokers have freed the disk space (R6)."),
    ] = False
    wait_at_most: Annotated[
        int,
        option(
            "--wait-at-most",
            metavar="DURATION",
            parser=duration_ms,
            help="Stop waiting after this long (exit 5). Default: 15m.",
            show_default=False,
        ),
    ] = "15m"  # type: ignore[assignment]  # (the option's parser reads it)
    fail_on_hold: Annotated[bool, option("--fail-on-hold", help="Exit with 4 if partitions were held.")] = False
    inventory: Inventories = None
    output: OutputOption = "table"
    all_rows: AllPartitions = False

    @property
    def source(self) -> str | None:
        """The saved plan's file; None if the plan is made in this run."""
        return None if self.plan is None else str(self.plan)

    @property
    def max_age_ms(self) -> int | None:
        """How old a saved plan may be when it is carried out, None if the plan is made in this run."""
        return None if self.plan is None else self.max_age

    def shown(self, plan: Plan | None) -> Offered | None:
        """Return what a trim of this plan has to show if it needs an approval; None if it was made in this run."""
        from retention_cli.plan.approval import offered

        return None if plan is None else offered(plan, self.source, self.approval, self.max_age)


@dataclass(frozen=True, slots=True)
class PlanFlags(OptionGroup):
    """How to make a plan, where to save it, and how to print it."""

    out: Annotated[
        Path | None,
        option("--out", of="plan", metavar="FILE", help="Save the plan (.json or .parquet) for trim --plan."),
    ] = None
    key: Annotated[
        Path | None,
        option("--key", metavar="FILE", help="Sign the plan as its requester with this private key."),
    ] = None
    evidence: Annotated[
        bool, option("--evidence", of="plan", help="Record the plan's facts for replay, verify and explain.")
    ] = False
    inventory: Inventories = None
    output: PlanOutputOption = "table"
    all_rows: AllPartitions = False
    detailed_exitcode: Annotated[
        bool, option("--detailed-exitcode", help="Exit with 3 if there is something to trim.")
    ] = False
    fail_on_hold: Annotated[bool, option("--fail-on-hold", help="Exit with 4 if partitions are on hold.")] = False

    def code_of(self, totals: Totals, *, short: bool = False) -> Exit:
        """Return the exit code of a plan; ``short``: it does not bring every disk below its ceiling."""
        return worst(
            Exit.ON_HOLD if self.fail_on_hold and (totals.hold or short) else Exit.DONE,
            Exit.HAS_CHANGES if self.detailed_exitcode and totals.trim else Exit.DONE,
        )


@dataclass(frozen=True, slots=True)
class SparkFlags(OptionGroup):
    """Whether to run over Spark, and how."""

    spark: Annotated[
        bool,
        option("--spark", panel=SPARK, help="Read and decide on Spark, which never deletes."),
    ] = False
    master: Annotated[
        str | None,
        option("--master", metavar="MASTER", panel=SPARK, help="Use this Spark master. Default: Spark's, or local."),
    ] = None
    spark_conf: Annotated[
        list[str] | None,
        option("--spark-conf", metavar="KEY=VALUE", panel=SPARK, help="Set a Spark option. Repeatable."),
    ] = None
    executor_command_config: Annotated[
        str | None,
        option(
            "--executor-command-config",
            metavar="FILE",
            panel=SPARK,
            help="Use the client file at this path on executors.",
        ),
    ] = None
    connections_per_broker: Annotated[
        int | None,
        option("--connections-per-broker", metavar="N", min=1, panel=SPARK, help="Limit tasks per broker. Default: 2."),
    ] = None
    partitions_per_task: Annotated[
        int | None,
        option(
            "--partitions-per-task", metavar="N", min=0, panel=SPARK, help="Split larger clusters. Default: 300000."
        ),
    ] = None

    def check(self) -> None:
        """Check that Spark's options are valid, and given only with ``--spark``.

        Raises:
            UsageError: ``--spark`` is missing, or a setting is not KEY=VALUE.
            MissingPartError: PySpark, or what it needs, is not installed.
        """
        for name in ("spark_conf", "executor_command_config", "connections_per_broker", "partitions_per_task"):
            if getattr(self, name) is not None and not self.spark:
                raise UsageError(f"--{name.replace('_', '-')} needs --spark")
        self.conf()
        if self.spark:
            from retention_cli.core.extras import require_spark

            require_spark()

    def limits(self) -> dict[str, int]:
        """Return the limits that were given, by their names in :func:`retention_cli.engines.spark.plans.make_plans`."""
        given = {"connections": self.connections_per_broker, "a_task": self.partitions_per_task}
        return {name: one for name, one in given.items() if one is not None}

    def conf(self) -> dict[str, str]:
        """Return the given Spark settings."""
        found = {}
        for one in self.spark_conf or ():
            key, equals, value = one.partition("=")
            if not equals or not key.startswith("spark."):
                raise UsageError(f"--spark-conf {key}: is not spark.….=VALUE")
            found[key] = value
        return found


def check_one(paths: list[Path] | None, *, wait: bool = False) -> None:
    """Check that no option for the disks of one cluster was given, for a command on several clusters.

    Raises:
        UsageError: one was given.
    """
    for given, name in ((paths, "--inventory"), (wait, "--wait")):
        if given:
            raise UsageError(f"{name} is for one cluster: name it with --cluster NAME")


class InventoryOption:
    """The inventory of ``--inventory``, else of the policy: its files, and its content if this process reads it.

    A file that can't be read is left out, unless ``require_all`` is set: what a person starts trims nothing by
    bad input.

    Raises:
        InventoryError: the policy names files that do not exist.
    """

    def __init__(self, paths: list[Path] | None, policy: Policy, *, require_all: bool = False) -> None:
        self._require_all = require_all
        self.paths = paths or []
        if not self.paths and policy.disks.inventory:
            from retention_cli.disks.inventory.read import inventory_paths

            self.paths = inventory_paths(policy)

    @functools.cached_property
    def view(self) -> InventoryView | None:
        """The inventory, read at first use; None if there is none.

        Raises:
            InventoryError: the inventory can't be read.
            MissingPartError: pyarrow or numpy is not installed.
        """
        if not self.paths:
            return None
        from retention_cli.disks.inventory.read import inventory_view

        return inventory_view(self.paths, require_all=self._require_all)
