"""The policy topic's messages: read as settings per topic, checked, and merged (docs/live-settings.md). Pure.

The compacted topic ``_kretain_policy`` has a topic's name as key and JSON of settings as value. The last message of a
key counts, as after compaction, and may only set keys that the file marks ``cluster`` for that topic. If it can't be
read, or anything in it is wrong, the topic is held: whether earlier settings apply must not depend on whether a log
cleaner ran.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from retention_cli.core.file_problems import json_problem
from retention_cli.core.json_values import JsonContentError, parse_json
from retention_cli.core.model import Reason, Unknown
from retention_cli.core.printable import plain
from retention_cli.policy.errors import value_problem
from retention_cli.policy.model import LiveSettings, Policy
from retention_cli.policy.schema import LIVE_KEYS, EntryModel
from retention_cli.policy.schema_reports import StrictModel
from retention_cli.policy.settings import Origin
from retention_cli.policy.values import TOPIC_NAME

POLICY_TOPIC: Final = "_kretain_policy"
_NAMED: Final = 3
"""How many keys that can't live there are named; the others are counted."""
_HELD: Final = (
    "so the topic is held: correct the message with kretain policy set, or remove it with kretain policy unset"
)


class Message(NamedTuple):
    """One message of a topic of kretain's own. A value of None (a tombstone) deletes its key: a topic's settings.

    ``time_ms`` is its timestamp (Unix ms).
    """

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    time_ms: int = 0
    topic: str = POLICY_TOPIC

    @property
    def place(self) -> str:
        """Its topic, partition and offset, for display."""
        return f"{self.topic}-{self.partition} offset {self.offset:,}"


class LiveValueError(ValueError):
    """A key that can't live in the policy topic, or an invalid value."""


@cache
def _entries() -> TypeAdapter[Any]:
    """Return what reads entries as a policy file's are read; made at its first use."""
    return TypeAdapter(list[EntryModel], config=StrictModel.model_config)


def check_value(key: str, value: Any) -> Any:
    """Return a live setting's value in the policy's own units.

    Raises:
        LiveValueError: there is no such live key, or the value is wrong; the text says which, and repeats no more than
            80 characters of it.
    """
    if key not in LIVE_KEYS:
        raise LiveValueError(
            f"{plain(key)} can't be set in the policy topic; these can: {', '.join(sorted(LIVE_KEYS))}"
        )
    if value is None:
        raise LiveValueError(f"{key} has no value: omit it, or delete the message")
    try:
        [entry] = _entries().validate_python([{"match": ["*"], key: value}])
    except ValidationError as error:
        raise LiveValueError(f"{key}: {value_problem(error.errors(include_url=False)[0])}") from None
    return entry[key]


def parse_value(raw: bytes) -> dict[str, Any]:
    """Return a message's JSON object.

    Raises:
        LiveValueError: it isn't one.
    """
    try:
        data = parse_json(raw.decode("utf-8"))
    except JsonContentError as error:
        raise LiveValueError(
            "sets a key twice" if error.twice else f"is not JSON: {error} is not a JSON number"
        ) from None
    except UnicodeDecodeError:
        raise LiveValueError("is not UTF-8") from None
    except RecursionError:
        raise LiveValueError("is not JSON of settings: it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise LiveValueError(f"is not JSON: {json_problem(error)[1]} (at its character {error.pos + 1:,})") from None
    except ValueError:  # Python reads no number of more than 4,300 digits
        raise LiveValueError("is not JSON of settings: a number in it has thousands of digits") from None
    if not isinstance(data, dict):
        raise LiveValueError("is not a JSON object of settings")
    return data


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """A parsed message about a topic: its settings as written, the valid ones, and what is wrong.

    ``values`` are in the policy's own units. They count only if nothing is ``wrong``.
    """

    topic: str
    message: Message
    written: Mapping[str, Any]
    values: Mapping[str, Any]
    wrong: tuple[str, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, each with the message's place."""
        return tuple(f"{self.message.place}, for topic {self.topic}: {one}" for one in self.wrong)


def latest_messages(messages: Iterable[Message]) -> tuple[dict[str, Message], list[Reason]]:
    """Return the last message about each topic, in order, without tombstones, and notes on keys that name none.

    Args:
        messages: in the order of their offsets, compacted or not: the result is the same.
    """
    last: dict[bytes, Message] = {}
    for message in messages:
        key = message.key or b""
        last.pop(key, None)
        last[key] = message
    current = [(key.decode("utf-8", "replace"), one) for key, one in last.items() if one.value is not None]
    notes = [
        Reason("policy-topic", f"{one.place}: its key is not a topic name; ignored")
        for topic, one in current
        if not TOPIC_NAME.fullmatch(topic)
    ]
    return {topic: one for topic, one in current if TOPIC_NAME.fullmatch(topic)}, notes


def read_message(topic: str, message: Message, marked: Collection[str]) -> LiveMessage:
    """Parse a message that has a value; keys other than the ``marked`` ones are wrong."""
    assert message.value is not None  # noqa: S101  (tombstones were left out)
    try:
        written = parse_value(message.value)
    except LiveValueError as error:
        return LiveMessage(topic, message, {}, {}, (str(error),))
    if not written:
        return LiveMessage(
            topic, message, {}, {}, ("sets nothing: to remove settings, write a message without a value (a tombstone)",)
        )
    unmarked = "the policy file does not mark {} as cluster for it"
    values, wrong = _checked(written, marked, unmarked.format, _NAMED)
    return LiveMessage(topic, message, written, values, tuple(wrong))


def _checked(
    settings: Mapping[str, Any], marked: Collection[str], unmarked: Callable[[str], str], most: int
) -> tuple[dict[str, Any], list[str]]:
    """Return the values that are right, and what is wrong; ``unmarked`` says what, of a key that is not marked.

    Keys that can't live in the policy topic are only counted after this many problems: there may be a hundred thousand.
    """
    values: dict[str, Any] = {}
    wrong: list[str] = []
    more = 0
    for key, value in settings.items():
        if key not in LIVE_KEYS and len(wrong) >= most:
            more += 1
            continue
        try:
            values[key] = check_value(key, value)
        except LiveValueError as error:
            wrong.append(str(error))
            continue
        if key not in marked:
            wrong.append(unmarked(key))
    if more:
        wrong.append(f"{more:,} more of its keys can't be set in the policy topic")
    return values, wrong


def live_settings(policy: Policy, messages: Iterable[Message]) -> LiveSettings:
    """Return the policy topic's current settings; ``messages`` are in the order of their offsets.

    A message about a topic for which the file marks nothing is ignored, with a note: it does not hold the topic.
    """
    last, notes = latest_messages(messages)
    values: dict[str, dict[str, Origin]] = {}
    unsettled: dict[str, Unknown] = {}
    for topic, message in last.items():
        if not (marked := policy.live_keys(topic)):
            text = f"{message.place}, for topic {topic}: the policy file marks nothing as cluster for it; ignored"
            notes.append(Reason("policy-topic", text))
            continue
        parsed = read_message(topic, message, marked)
        if parsed.wrong:
            unsettled[topic] = Unknown(tuple(Reason("policy-topic", f"{one}; {_HELD}") for one in parsed.problems))
        else:
            values[topic] = {key: Origin(value, message.place) for key, value in parsed.values.items()}
    return LiveSettings(values=values, unsettled=unsettled, unread=None, notes=tuple(notes))


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


def list_settings(messages: Sequence[Message], policy: Policy | None) -> LiveList:
    """Return the policy topic's settings, and which of them count by the policy file."""
    last, notes = latest_messages(messages)
    parsed = [read_message(topic, message, _marked(policy, topic)) for topic, message in last.items()]
    rows = [_row(one, key, policy) for one in parsed for key in one.values]
    problems = [Reason("policy-topic", text) for one in parsed for text in one.problems]
    if policy is not None:  # it decides what is held or ignored
        live = live_settings(policy, messages)
        problems = [reason for unknown in live.unsettled.values() for reason in unknown.reasons]
        notes = list(live.notes)
    return LiveList(sorted(rows, key=lambda row: (row.topic, row.key)), [*problems, *notes])


def last_message(messages: Sequence[Message], policy: Policy | None, topic: str) -> LiveMessage | None:
    """Return the last message about a topic, checked against the keys that the policy marks; None if there is none.

    If the policy marks nothing for it, or there is no policy file, every live key is valid.
    """
    message = latest_messages(messages)[0].get(topic)
    return None if message is None else read_message(topic, message, _marked(policy, topic))


def valid_settings(policy: Policy | None, topic: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those settings, as written, that may count: the others hold the topic."""
    marked = _marked(policy, topic)
    values, _wrong = _checked(settings, marked, str, len(settings))
    return {key: settings[key] for key in values if key in marked}


def check_topic(topic: str) -> None:
    """Check that a topic can have this name.

    Raises:
        LiveEditError: it can't.
    """
    if not TOPIC_NAME.fullmatch(topic):
        raise LiveEditError(f"{plain(topic)} is not a topic name")


def check_settings(policy: Policy, topic: str, new: Mapping[str, Any]) -> None:
    """Check that these settings may be set for a topic, and that their values are right.

    Raises:
        LiveEditError: they may not, or a value is wrong; the text names every problem.
    """

    def unmarked(key: str) -> str:
        return f"{_why_not(policy, topic, key)}; write {key}: cluster in the entry that matches it"

    _values, problems = _checked(new, policy.live_keys(topic), unmarked, len(new))
    if problems:
        raise LiveEditError("; ".join(problems))


def without(before: Mapping[str, Any], topic: str, keys: Collection[str]) -> dict[str, Any]:
    """Return settings without these keys; if no keys are given, an empty mapping.

    Raises:
        LiveEditError: a key is not set.
    """
    if missing := [key for key in keys if key not in before]:
        has = f"it has {', '.join(map(plain, sorted(before)[:_SHOWN]))}" if before else "it has none"
        raise LiveEditError(f"{', '.join(missing)} is not set for topic {topic} in the policy topic; {has}")
    return {key: value for key, value in before.items() if key not in keys} if keys else {}


def _marked(policy: Policy | None, topic: str) -> frozenset[str]:
    return (policy.live_keys(topic) if policy is not None else None) or LIVE_KEYS


def _row(parsed: LiveMessage, key: str, policy: Policy | None) -> LiveRow:
    at, why_not = parsed.message, None
    if policy is not None and key not in policy.live_keys(parsed.topic):
        why_not = _why_not(policy, parsed.topic, key)
    elif policy is not None and parsed.wrong:
        why_not = "its message is wrong, so the topic is held"
    counts = None if policy is None else why_not is None
    return LiveRow(parsed.topic, key, parsed.written[key], at.partition, at.offset, counts, why_not)


def _why_not(policy: Policy, topic: str, key: str) -> str:
    if (origins := policy.origins_in_file(topic)) is None:
        return f"no entry of {policy.source} matches topic {topic}"
    if key in origins:
        return f"{origins[key].place} sets {key} itself for topic {topic}, and does not mark it cluster"
    return f"{policy.source} does not mark {key} as cluster for topic {topic}"
