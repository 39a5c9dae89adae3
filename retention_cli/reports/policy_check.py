"""Check a policy against its cluster, to find errors before a plan is made (R1, F4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.grouping import by_key
from retention_cli.core.model import INFINITE_MS, Maybe, TopicFacts
from retention_cli.core.units import count, some_of
from retention_cli.decide.triggers.consumed import forced_retention_conflict, live_retention
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.cluster import configured, never_touched
from retention_cli.observe.floors.kafka_groups import misnamed_groups
from retention_cli.plan.make import off_disks, reached_by_pattern
from retention_cli.policy.errors import PolicyError, PolicyProblem
from retention_cli.policy.model import Entry, Policy, matches
from retention_cli.policy.selection import first_few, idle_patterns, likely_live_mistakes, likely_mistakes, unmatched
from retention_cli.policy.settings import Settings
from retention_cli.state.own_topics import with_live


@dataclass(slots=True)
class Findings:
    """What a check found: problems make it fail, notes are for information. Counts are of topics."""

    problems: list[PolicyProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    managed: int = 0
    skipped: int = 0
    frozen: int = 0


def check_alone(policy: Policy) -> Findings:
    """Check what can be checked without the cluster. The file itself was checked when it was loaded."""
    findings = Findings()
    if not (policy.groups.require or any("groups.require" in entry.values for entry in policy.entries)):
        findings.notes.append(
            "groups.require is not set: only groups that kretain can see protect the data; name the required ones (F4)"
        )
    for entry in policy.entries:
        findings.notes += [str(policy.problem(entry, key, text)) for key, text in _oddities(policy, entry)]
        _check_times(policy, entry, findings)
    findings.notes += map(str, likely_mistakes(policy))
    return findings


def _oddities(policy: Policy, entry: Entry) -> Iterator[tuple[str, str]]:
    """Yield the entry's keys that do nothing, or more than they seem to."""
    times = [key for key in entry.values if key.startswith("retention.commitoffset.") and not key.endswith(".enable")]
    if times and not any(other.values.get("retention.commitoffset.enable") for other in policy.entries):
        yield times[0], "has no effect: retention.commitoffset.enable is not true anywhere"
    if entry.values.get("retention.ms") == 0:
        yield "retention.ms", "is 0: every record is old enough immediately"
    if policy.disks.percent is None and entry.values.keys() <= _NO_RULES:
        yield "match", "this entry turns on no rule"


def _check_times(policy: Policy, entry: Entry, findings: Findings) -> None:
    """Find T above A (R1) where the file alone shows it: for names, and for globs, which match their own text."""
    for pattern in entry.match:
        settings = None if pattern.startswith("re:") else _settings_for(policy, pattern, findings)
        if settings is not None and (text := _conflict_of(settings, INFINITE_MS)) is not None:
            findings.problems.append(_conflict(policy, pattern, [pattern], text))


def _settings_for(policy: Policy, topic: str, findings: Findings) -> Settings | None:
    """Return a topic's settings, None if it has none, or wrong ones, which are a problem."""
    try:
        return policy.settings_for(topic)
    except PolicyError as error:
        findings.problems += error.problems
        return None


def _conflict_of(settings: Settings, live_ms: Maybe[int]) -> str | None:
    """Return why R1's time is wrong given a live ``retention.ms`` and R4's age; None if it is not, or not set."""
    if settings.consumed_after_ms is None:
        return None
    conflict = forced_retention_conflict(settings.consumed_after_ms, live_ms, settings.forced_age_ms)
    return None if conflict is None else conflict.reasons[0].text


_NO_RULES: Final = {"unconsumed", "allow.ancient", "compacted", "archive", "granularity", "tiered"}


def check_against(policy: Policy, reader: ClusterReader) -> Findings:
    """Check the policy against a cluster's topics, their own settings, and the policy topic's settings.

    If no entry matches any topic, only that is reported: nothing else can be checked.

    Raises:
        BrokerError: the cluster could not be asked.
    """
    topics = [name for name, topic in reader.metadata().topics.items() if not topic.internal]
    if len(missing := unmatched(policy, topics)) == len(policy.entries):
        return Findings(first_few(missing))
    findings = check_alone(policy)
    policy = with_live(reader, policy)
    findings.notes += [
        *(note.text for note in policy.live.notes),
        *map(str, likely_live_mistakes(policy)),
        *map(str, idle_patterns(policy, topics)),
        *misnamed_groups(policy, reader, Ledger(None), 0),
    ]
    findings.problems += missing
    managed = {name: one for name in sorted(topics) if (one := _settings_for(policy, name, findings)) is not None}
    _check_live(policy, managed, findings)
    _check_topics(policy, managed, reader, findings)
    findings.problems.sort(key=lambda problem: (problem.line or 0, problem.key, problem.text))
    return findings


def _check_live(policy: Policy, managed: dict[str, Settings], findings: Findings) -> None:
    """Name the topics that are held because a setting marked ``cluster`` is unknown."""
    unsettled = ((name, one.unsettled) for name, one in managed.items() if one.unsettled is not None)
    for text, names in by_key((reason.text, name) for name, one in unsettled for reason in one.reasons).items():
        findings.problems.append(
            PolicyProblem(policy.source, None, "cluster", f"{some_of(names, noun='topic')}: {text}")
        )
        findings.notes = [note for note in findings.notes if not text.startswith(note)]


def _check_topics(policy: Policy, managed: dict[str, Settings], reader: ClusterReader, findings: Findings) -> None:
    configs = reader.topic_configs(list(managed)) if managed else {}
    unreadable = sorted(f"{name}: {configs[name]}" for name in managed if isinstance(configs[name], RequestFailedError))
    known_topics = [
        configured(TopicFacts(name, "", False, frozenset(), -1), config)
        for name in managed
        if not isinstance(config := configs[name], RequestFailedError)
    ]
    touched = [one for one in known_topics if not never_touched(one, managed[one.name])]
    findings.managed, findings.skipped = len(managed), len(known_topics) - len(touched)
    findings.frozen = sum(one.hold is not None for one in managed.values())
    conflicts = by_key((_conflict_of(managed[one.name], live_retention(one)), one.name) for one in touched)
    findings.notes += [note.text for note in reached_by_pattern(known_topics, managed, policy)]
    elsewhere = off_disks(known_topics, managed)
    findings.notes += [note.text for note in elsewhere._replace(unconfirmed=[]).notes()]
    findings.problems += _unconfirmed(policy, elsewhere.unconfirmed)
    findings.problems += [
        _conflict(policy, names[0], names, text)
        for text, names in conflicts.items()
        if text is not None
        and not any(text in one.text for one in findings.problems)  # not already found in the file alone
    ]
    findings.notes += [f"its settings can't be read: {text}" for text in unreadable[:3]]
    if len(unreadable) > 3:
        findings.notes.append(f"and {count(len(unreadable) - 3, 'more topic')} whose settings can't be read")


def _unconfirmed(policy: Policy, topics: Sequence[str]) -> Iterable[PolicyProblem]:
    """Yield a problem for each entry that is the last to match topics with remote storage."""

    def last_of(name: str) -> int:
        return max(number for number, entry in enumerate(policy.entries) if matches(entry.match, name))

    for number, names in by_key((last_of(name), name) for name in topics).items():
        text = (
            f"is not set to trim for {some_of(names, noun='topic')}, with remote storage (remote.storage.enable): its "
            f"rules also delete what is remote. Set tiered: trim, or leave the topics out"
        )
        yield policy.problem(policy.entries[number], "tiered", text)


def _conflict(policy: Policy, topic: str, topics: Sequence[str], text: str) -> PolicyProblem:
    """Return the problem, located at the setting that R1's time for ``topic`` comes from."""
    origins = policy.origins(topic) or {}
    key = next(
        (key for key in origins if key.startswith("retention.commitoffset.") and not key.endswith(".enable")), ""
    )
    return PolicyProblem.at(
        origins[key].place if key else policy.source, key, f"{some_of(topics, noun='topic')}: {text}"
    )
