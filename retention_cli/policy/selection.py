"""Choose the topics that the policy manages and that TOPIC arguments name; say which entries match nothing. Pure."""

from __future__ import annotations

import difflib
import heapq
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from os.path import commonprefix
from typing import Final

from retention_cli.core.errors import hinted
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Code, Reason, TopicPartition
from retention_cli.core.printable import plain, shown
from retention_cli.core.units import count, some_of
from retention_cli.policy.errors import PolicyProblem
from retention_cli.policy.model import Entry, Policy, matches
from retention_cli.policy.settings import DEFAULT_IGNORED_GROUPS, Settings

_WITHOUT_R6: Final = Reason(
    Code.R6,
    "log.retention.disk.usage.percent is ignored: it needs all topics that the policy manages; run without TOPIC "
    "arguments to use it",
)


class NothingMatchesError(Exception):
    """The policy, or a TOPIC, matches no topic of this cluster. ``problems`` are lines for display, at least one."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Selection:
    """A policy, and the TOPIC arguments that choose among the topics it manages.

    ``partitions`` are those of TOPIC:PARTITION arguments, whose topics are in ``topics``, too. They narrow what is
    shown and trimmed, never what is decided: a topic's rules look at all of it
    (:func:`retention_cli.trim.narrow.of_partitions`).
    """

    policy: Policy
    topics: tuple[str, ...] = ()
    partitions: frozenset[TopicPartition] = frozenset()

    def settings_for(self, topic: str) -> Settings | None:
        """Return a topic's settings, None if it is not chosen or not managed."""
        return None if self.topics and not matches(self.topics, topic) else self.policy.settings_for(topic)

    @property
    def given(self) -> tuple[str, ...]:
        """The TOPIC and TOPIC:PARTITION arguments."""
        parted = by_key((one.topic, f"{one.topic}:{one.partition}") for one in sorted(self.partitions))
        return tuple(text for topic in self.topics for text in parted.get(topic, (topic,)))

    def asks_for(self, tp: TopicPartition) -> bool:
        """Return whether a chosen topic's partition is chosen: named itself, or its topic named without a partition."""
        if not self.partitions or tp in self.partitions:
            return True
        parted = {one.topic for one in self.partitions}
        return matches((one for one in self.topics if one not in parted), tp.topic)

    @property
    def decided_alone(self) -> Selection:
        """The selection, without a ceiling if TOPIC arguments choose some topics: R6 is decided over all of them.

        Otherwise the chosen topics would be trimmed for all the others.
        """
        if not self.leaves_ceiling_out:
            return self
        return replace(self, policy=replace(self.policy, disks=replace(self.policy.disks, percent=None)))

    @property
    def leaves_ceiling_out(self) -> bool:
        """Whether R6 is left out because of TOPIC arguments."""
        return bool(self.topics) and self.policy.disks.percent is not None


def no_topic(pattern: str, names: Collection[str]) -> NothingMatchesError:
    """Return the error about a TOPIC argument that matches none of the cluster's topics."""
    similar = nearest([pattern], names)
    hint = f"; did you mean {similar}?" if similar is not None else " (or this user lacks DESCRIBE on it)"
    return NothingMatchesError(f"no topic matches {shown(pattern)}{hint}")


def check_matches(selection: Selection, names: Collection[str]) -> list[Reason]:
    """Return a note for each entry that matches none of the cluster's topics.

    Raises:
        NothingMatchesError: no entry matches any topic, or a TOPIC argument matches none.
    """
    for pattern in selection.topics:
        if not any(matches((pattern,), name) for name in names):
            raise no_topic(pattern, names)
    policy = selection.policy
    missing = unmatched(policy, names)
    if not any(selection.settings_for(name) is not None for name in names):
        if selection.topics:
            raise NothingMatchesError(f"{policy.source}: no entry matches {', '.join(map(plain, selection.topics))}")
        if all(name.startswith("__") for name in names):
            raise hinted(
                NothingMatchesError("no topic matches: the cluster has none, or this user lacks DESCRIBE on them"), ""
            )
        raise NothingMatchesError(*map(str, first_few(missing)))
    problems = (*missing, *idle_patterns(policy, names), *likely_mistakes(policy), *likely_live_mistakes(policy))
    notes = [Reason("policy", str(problem)) for problem in problems]
    return [*notes, _WITHOUT_R6] if selection.leaves_ceiling_out else notes


def likely_mistakes(policy: Policy) -> list[PolicyProblem]:
    """Return a problem for each age or size that looks like another unit: 7 or 604800 for 7 days, 500 for 500 GB."""
    values = [
        (entry, {**entry.values, **{f"{_UNTIL}, {key}": one for key, one in (entry.values.get(_UNTIL) or {}).items()}})
        for entry in policy.entries
    ]
    others = (
        ("groups.remember", policy.groups.remember_ms),
        ("groups.watch.first", policy.groups.watch_first_ms),
        *((f"groups.start, {plain(name)}", back_ms) for name, back_ms in policy.groups.start),
        *(("disks.watermarks, minimum", one.minimum_ms) for one in policy.disks.watermarks),
    )
    ages = [
        *((policy.problem(entry, key, ""), of.get(key)) for entry, of in values for key in _AGES),
        *((PolicyProblem(policy.source, None, key, ""), age_ms) for key, age_ms in others),
    ]
    sizes = [(policy.problem(entry, key, ""), of.get(key)) for entry, of in values for key in _SIZES]
    return [
        *_likely_ages(ages),
        *(
            replace(at, text=f"is {count(size, 'byte')}: a bare number is in bytes; write a unit, such as 500GB")
            for at, size in sizes
            if type(size) is int and 0 < size < _FEW_BYTES
        ),
    ]


def likely_live_mistakes(policy: Policy) -> list[PolicyProblem]:
    """Return the same for the ages that the policy topic sets."""
    live = (item for of in policy.live.values.values() for item in of.items())
    return _likely_ages((PolicyProblem.at(one.place, key, ""), one.value) for key, one in live if key in _AGES)


def _likely_ages(ages: Iterable[tuple[PolicyProblem, object]]) -> list[PolicyProblem]:
    text = "is {:,} ms, {:,.3g} s: a bare number is in ms; write a unit, such as 7d"
    return [
        replace(at, text=text.format(age_ms, age_ms / 1000))
        for at, age_ms in ages
        if type(age_ms) is int and 0 < age_ms < _HOUR_MS and age_ms % _MINUTE_MS
    ]


_UNTIL: Final = "retention.until.consumed"
_AGES: Final = (
    *("retention.ms", "retention.commitoffset.ms", "retention.max.eventtime.ms", "retention.min.wallclock.ms"),
    f"{_UNTIL}, max",
)
_SIZES: Final = ("retention.bytes", "retention.topic.bytes", f"{_UNTIL}, max.bytes")
_FEW_BYTES: Final = 100_000
"""A size below this may be meant in MB or GB."""
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
NAMED: Final = 5
"""How many entries get a near name. If no entry matches, as many are named and the others counted."""
_PATTERNS: Final = 3
"""How many patterns of an entry are shown, and compared with names."""
_COMPARED: Final = 500
"""How many names are compared letter by letter: twenty thousand would take seconds."""
_SIGNS: Final = re.compile(r"[*?\[\]]")
_BEGINS: Final = re.compile(r"\^?((?:[a-zA-Z0-9_-]|\\[.-])*)")
"""The literal beginning of a regular expression."""


def unmatched(policy: Policy, names: Collection[str]) -> list[PolicyProblem]:
    """Return a problem for each entry that matches none of ``names``, in the file's order."""
    entries = [entry for entry in policy.entries if not any(matches(entry.match, name) for name in names)]
    similar = [nearest(entry.match[:_PATTERNS], names) for entry in entries[:NAMED]]
    return [
        _problem(policy, entry, similar[number] if number < NAMED else None) for number, entry in enumerate(entries)
    ]


def idle_patterns(policy: Policy, names: Collection[str]) -> list[PolicyProblem]:
    """Return a problem for each pattern without a topic, of entries that match others, and of sources in ``floors``.

    A name with a typo is not held, or its consumer holds nothing (F7), though the others beside it look right.
    """
    lists = [
        (policy.problem(entry, "match", ""), entry.match)
        for entry in policy.entries
        if len(entry.match) > 1 and any(matches(entry.match, name) for name in names)
    ] + [
        (PolicyProblem(policy.source, None, f"floors, {source.kind}: topics", ""), source.topics or ())
        for source in policy.groups.sources
    ]
    idle = [(at, one) for at, some in lists for one in some if not any(matches((one,), name) for name in names)]
    hints = [_hint(one, names) for _, one in idle[:NAMED]] + [""] * (len(idle) - NAMED)
    found = [replace(at, text=f"no topic {plain(one)}{hint}") for (at, one), hint in zip(idle, hints, strict=True)]
    return first_few(found, "pattern matches", "patterns match")


def _hint(pattern: str, names: Collection[str]) -> str:
    similar = nearest((pattern,), names)
    return "" if similar is None else f"; did you mean {plain(similar)}?"


def groups_not_there(policy: Policy, groups: Collection[str]) -> list[str]:
    """Return a note for each name or pattern of groups in the policy that no group of the cluster has.

    A required group that is missing holds every topic that requires it (F4); patterns that match nothing do nothing.
    """
    rules = policy.groups
    of_entries = (name for entry in policy.entries for name in entry.values.get("groups.require", ()))
    names = {
        "groups.require": dict.fromkeys((*rules.require, *of_entries)),
        "groups.start": [name for name, _ms in rules.start],
    }
    patterns = {
        "groups.ignore": () if rules.ignore == DEFAULT_IGNORED_GROUPS else rules.ignore,
        "groups.latest": rules.latest,
        "groups.by.commits": rules.by_commits,
        "groups.stale.epochs": rules.stale_epochs,
    }
    wanted = [
        *((key, one) for key, some in names.items() for one in some if one not in groups),
        *(
            (key, one)
            for key, some in patterns.items()
            for one in some
            if not any(matches((one,), group) for group in groups)
        ),
    ]
    notes = [f"{key}: no group {plain(name)}{_hint(name, groups)}" for key, name in wanted[:NAMED]]
    if len(wanted) > NAMED:
        notes.append(f"{len(wanted) - NAMED:,} more groups do not exist")
    return notes


def first_few(
    problems: list[PolicyProblem], one: str = "entry matches", several: str = "entries match"
) -> list[PolicyProblem]:
    """Return the first few problems, and how many more there are of what matches no topic."""
    if (more := len(problems) - NAMED) <= 0:
        return problems
    text = f"{more:,} more {one if more == 1 else several} no topic"
    return [*problems[:NAMED], PolicyProblem(problems[0].source, None, "", text)]


def nearest(patterns: Iterable[str], names: Collection[str]) -> str | None:
    """Return the name that is most similar to one of the patterns, None if none is similar.

    Of a glob, the text before its first wildcard and after its last is compared, with as much of a name.
    """
    best, found = 0.0, None
    for pattern in patterns:
        head, tail = _spelled(pattern)
        cuts = {
            (name if tail is None else name[: len(head)] + name[len(name) - len(tail) :]).lower(): name
            for name in sorted(names, reverse=True)
            if name[:2] != "__"
        }
        spelled = (head + (tail or "")).lower()
        likely = heapq.nlargest(_COMPARED, cuts, key=partial(_in_common, spelled)) if spelled else ()
        for cut in difflib.get_close_matches(spelled, likely, n=1):
            ratio = difflib.SequenceMatcher(None, spelled, cut).ratio()
            if ratio > best:
                best, found = ratio, cuts[cut]
    return found


def _spelled(pattern: str) -> tuple[str, str | None]:
    """Return a pattern's literal beginning and end; the end is None if the pattern is a complete name."""
    if pattern.startswith("re:"):
        begins = _BEGINS.match(pattern, 3)
        return (begins[1].replace("\\", "") if begins is not None else ""), ""
    head, *more = _SIGNS.split(pattern)
    return head, more[-1] if more else None


def _in_common(one: str, other: str) -> int:
    """Return how many letters two names share at their beginnings and ends: a typo changes only what is between."""
    return sum(len(commonprefix(pair)) for pair in ((one, other), (one[::-1], other[::-1])))  # noqa: RUF071  (letters)


def _problem(policy: Policy, entry: Entry, similar: str | None) -> PolicyProblem:
    hint = "" if similar is None else f"; did you mean {similar}?"
    every = some_of([*map(plain, entry.match)], _PATTERNS)
    return replace(policy.problem(entry, "match", f"match {every} matches no topic{hint}"), key="")
