"""The TOPIC argument and the one-off rules, and the selection from them and the policy file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kretain.completion.complete import complete_groups, complete_partitions, complete_topics
from kretain.errors import UsageError
from kretain.options.common import OptionGroup, duration_ms, option, time_ms
from retention_cli.core.model import TopicPartition
from retention_cli.core.printable import shown
from retention_cli.policy.model import Entry, PatternError, Policy, compiled
from retention_cli.policy.selection import Selection
from retention_cli.policy.settings import OneOff

ONE_OFF = "Rules for this run (the policy's guards and limits stay)"
_LAST_MS = 2**63 - 1
_LONGEST_NUMBER = 10


def group_patterns(given: list[str] | None) -> list[str] | None:
    """Check names, globs and ``re:`` expressions of groups, one of which may be called ``''``."""
    patterns([one for one in given or () if one])
    return given


def patterns(given: list[str] | None) -> list[str] | None:
    """Check names, globs and ``re:`` expressions on the command line: the callback of each argument with patterns."""
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
            help="Trim records older in event time (R2).",
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
    if policy_file is not None:
        return selection(policy_file, topics)
    return Selection(
        Policy(source="no policy", digest="", entries=(Entry(None, tuple(topics or ("*",)), {}),)),
        tuple(topics or ()),
    )


def selection(
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
    import json

    from retention_cli.plan.value import NO_FILE

    digest = hashlib.sha256(json.dumps([flags.flags(), flags.patterns], sort_keys=True).encode()).hexdigest()
    return Policy(source=NO_FILE, digest=f"sha256:{digest}")
