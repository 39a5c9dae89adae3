"""Check settings for the policy topic, and merge them with those it has (docs/live-settings.md). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from retention_cli.core.model import Reason
from retention_cli.policy.live import (
    LiveMessage,
    LiveValueError,
    Message,
    check_value,
    is_topic_name,
    latest_messages,
    live_settings,
    read_message,
)
from retention_cli.policy.model import COMMITOFFSET_TIMES, Policy
from retention_cli.policy.schema import LIVE_KEYS
from retention_cli.policy.shown import plain

_SHOWN: Final = 9
"""How many keys of a message are named: no more can live there."""


class LiveEditError(Exception):
    """A setting that can't be set, or can't be taken back; the text says why. Nothing was written."""


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One setting in the policy topic: its value as written, its place, and whether it counts.

    ``counts`` is None without a policy file; ``why_not`` says why it does not count.
    """

    topic: str
    key: str
    value: Any
    partition: int
    offset: int
    counts: bool | None
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class LiveList:
    """All settings in the policy topic, by topic and key, and what is wrong there."""

    rows: Sequence[LiveRow]
    problems: Sequence[Reason]


def said(messages: Sequence[Message], policy: Policy | None) -> LiveList:
    """Return the policy topic's settings, and which of them count by the policy file."""
    last, notes = latest_messages(messages)
    rows: list[LiveRow] = []
    problems: list[Reason] = []
    for topic, message in last.items():
        word = read_message(topic, message, _marked(policy, topic))
        rows += [_row(word, key, policy) for key in word.values]
        problems += [Reason("policy-topic", text) for text in word.problems]
    if policy is not None:  # it decides what is held or ignored
        live = live_settings(policy, messages)
        problems = [reason for unknown in live.unsettled.values() for reason in unknown.reasons]
        notes = list(live.notes)
    return LiveList(sorted(rows, key=lambda row: (row.topic, row.key)), [*problems, *notes])


def word_on(messages: Sequence[Message], policy: Policy | None, topic: str) -> LiveMessage | None:
    """Return the last message about a topic, checked against the keys that the policy marks; None if there is none.

    If the policy marks nothing for it, or there is no policy file, every live key is valid.
    """
    message = latest_messages(messages)[0].get(topic)
    return None if message is None else read_message(topic, message, _marked(policy, topic))


def right(policy: Policy | None, topic: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those settings, as written, that may count: the others hold the topic."""
    marked, found = _marked(policy, topic), {}
    for key in marked & settings.keys():
        try:
            check_value(key, settings[key])
        except LiveValueError:
            continue
        found[key] = settings[key]
    return found


def check_topic(topic: str) -> None:
    """Check that a topic can have this name.

    Raises:
        LiveEditError: it can't.
    """
    if not is_topic_name(topic):
        raise LiveEditError(f"{plain(topic)} is no topic's name")


def checked(policy: Policy, topic: str, new: Mapping[str, Any]) -> None:
    """Check that these settings may be set for a topic, and that their values are right.

    Raises:
        LiveEditError: they may not, or a value is wrong; the text names every problem.
    """
    problems = []
    marked = policy.live_keys(topic)
    for key, value in new.items():
        try:
            check_value(key, value)
        except LiveValueError as error:
            problems.append(str(error))
            continue
        if key not in marked:
            problems.append(f"{_why_not(policy, topic, key)}; write {key}: cluster in the entry that matches it")
    if problems:
        raise LiveEditError("; ".join(problems))


def merged_over(before: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings merged with new ones. R1's time has three keys: a new one replaces all three."""
    replaced = COMMITOFFSET_TIMES if any(key in new for key in COMMITOFFSET_TIMES) else ()
    return {**{key: value for key, value in before.items() if key not in replaced}, **new}


def without(before: Mapping[str, Any], topic: str, keys: Collection[str]) -> dict[str, Any]:
    """Return settings without these keys; if no keys are given, an empty mapping.

    Raises:
        LiveEditError: a key is not set.
    """
    missing = [key for key in keys if key not in before]
    if missing:
        has = f"it has {', '.join(map(plain, sorted(before)[:_SHOWN]))}" if before else "nothing is"
        raise LiveEditError(f"{', '.join(missing)} is not set for topic {topic} in the policy topic; {has}")
    return {key: value for key, value in before.items() if key not in keys} if keys else {}


def _marked(policy: Policy | None, topic: str) -> frozenset[str]:
    return (policy.live_keys(topic) if policy is not None else None) or LIVE_KEYS


def _row(word: LiveMessage, key: str, policy: Policy | None) -> LiveRow:
    at = word.message
    row = LiveRow(word.topic, key, word.written[key], at.partition, at.offset, None)
    if policy is None:
        return row
    if key not in policy.live_keys(word.topic):
        return replace(row, counts=False, why_not=_why_not(policy, word.topic, key))
    if word.wrong:
        return replace(row, counts=False, why_not="its message is wrong, so the topic is held")
    return replace(row, counts=True)


def _why_not(policy: Policy, topic: str, key: str) -> str:
    origins = policy.origins_in_file(topic)
    if origins is None:
        return f"no entry of {policy.source} matches topic {topic}"
    if key in origins:
        return f"{origins[key].place} sets {key} itself for topic {topic}, and does not mark it cluster"
    return f"{policy.source} does not mark {key} as cluster for topic {topic}"
