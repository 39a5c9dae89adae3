"""What is set in the policy topic: checked, and laid over what is said there (DESIGN.md, The policy file). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from retention_cli.model import Reason
from retention_cli.policy.live import LiveValueError, Message, check_value, live_settings, parse_value
from retention_cli.policy.model import COMMITOFFSET_TIMES, LIVE, Entry, LiveSettings, Policy
from retention_cli.policy.schema import LIVE_KEYS

ANYTHING: Final = Policy("", "", entries=(Entry(0, None, ("*",), dict.fromkeys(LIVE_KEYS, LIVE)),))
"""A policy that lets every live key count for every topic: what is said, whatever some file makes of it."""


class LiveEditError(Exception):
    """A setting that can't be set, or can't be taken back; the text says why. Nothing was written."""


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One setting that the policy topic says: its value as it was written, where, and whether it counts.

    ``counts`` is None where there is no policy file to ask; ``why_not`` says why it doesn't.
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
    """Everything that the policy topic says, by topic and key, and what is wrong in it."""

    rows: Sequence[LiveRow]
    problems: Sequence[Reason]


def said(messages: Sequence[Message], policy: Policy | None) -> LiveList:
    """Return what the topic says, and what the policy file makes of it."""
    anything = _rows(messages, live_settings(ANYTHING, messages))
    if policy is None:
        rows = [LiveRow(*key, value, one.partition, one.offset, None) for key, (value, one) in anything.items()]
        return LiveList(sorted(rows, key=_order), live_settings(ANYTHING, messages).notes)
    live = live_settings(policy, messages)
    counting = _rows(messages, live)
    rows = [LiveRow(*key, value, one.partition, one.offset, counts=True) for key, (value, one) in counting.items()]
    for (topic, key), (value, one) in anything.items():
        if (topic, key) not in counting:
            rows.append(LiveRow(topic, key, value, one.partition, one.offset, False, _why_not(policy, topic, key)))
    held = [reason for unknown in live.unsettled.values() for reason in unknown.reasons]
    texts = {reason.text for reason in held}  # they say it all, and what it comes to
    notes = [note for note in live.notes if not any(text.startswith(note.text) for text in texts)]
    return LiveList(sorted(rows, key=_order), [*held, *notes])


def in_force(messages: Sequence[Message], policy: Policy | None, topic: str) -> dict[str, Any]:
    """Return a topic's settings as they were written: what counts by the policy, and what else can be read."""
    found: dict[str, Any] = {}
    for one in (ANYTHING, policy):
        if one is not None:
            rows = _rows(messages, live_settings(one, messages))
            found |= {key: value for (name, key), (value, _message) in rows.items() if name == topic}
    return found


def checked(policy: Policy, topic: str, new: Mapping[str, Any]) -> None:
    """Check that these settings may be set for a topic, and that their values are right.

    Raises:
        LiveEditError: not so; everything that is wrong is named.
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


def laid_over(before: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with new ones over them. R1's time has three names, and the last that is set is the one."""
    replaced = COMMITOFFSET_TIMES if any(key in new for key in COMMITOFFSET_TIMES) else ()
    return {**{key: value for key, value in before.items() if key not in replaced}, **new}


def without(before: Mapping[str, Any], topic: str, keys: Collection[str]) -> dict[str, Any]:
    """Return settings without some of them, or without any.

    Raises:
        LiveEditError: one of them is not set.
    """
    missing = [key for key in keys if key not in before]
    if missing:
        has = f"it has {', '.join(sorted(before))}" if before else "nothing is"
        raise LiveEditError(f"{', '.join(missing)} is not set for topic {topic} in the policy topic; {has}")
    return {key: value for key, value in before.items() if key not in keys} if keys else {}


def _rows(messages: Iterable[Message], live: LiveSettings) -> dict[tuple[str, str], tuple[Any, Message]]:
    """Return each setting that holds, as it was written, and the message in which it stands."""
    by_place = {message.place: message for message in messages}
    found = {}
    for topic, origins in live.values.items():
        for key, origin in origins.items():
            message = by_place[origin.place]
            found[topic, key] = (parse_value(message.value or b"")[key], message)
    return found


def _why_not(policy: Policy, topic: str, key: str) -> str:
    origins = policy.origins_in_file(topic)
    if origins is None:
        return f"no entry of {policy.source} matches topic {topic}"
    if key in origins:
        return f"{origins[key].place} sets {key} itself for topic {topic}, and does not mark it cluster"
    return f"{policy.source} does not mark {key} as cluster for topic {topic}"


def _order(row: LiveRow) -> tuple[str, str]:
    return row.topic, row.key
