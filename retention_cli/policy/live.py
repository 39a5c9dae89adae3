"""Turn the policy topic's messages into settings per topic (docs/live-settings.md). Pure.

The compacted topic ``_kretain_policy`` has a topic's name as key and JSON of settings as value. The last message of a
key counts, as after compaction, and may only set keys that the file marks ``cluster`` for that topic. If it can't be
read, or anything in it is wrong, the topic is held: whether earlier settings apply must not depend on whether a log
cleaner ran.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from retention_cli.core.file_problems import json_problem, schema_problem
from retention_cli.core.model import Reason, Unknown
from retention_cli.core.strict_json import JsonContentError, parse_json
from retention_cli.policy.model import LiveSettings, Policy
from retention_cli.policy.schema import LIVE_KEYS, EntryModel
from retention_cli.policy.settings import Origin
from retention_cli.policy.shown import plain

POLICY_TOPIC: Final = "_kretain_policy"
TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_NAMED: Final = 3
"""How many keys that can't live there are named; the others are counted."""


class Message(NamedTuple):
    """One message of the policy topic. A value of None (a tombstone) removes a topic's settings."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None

    @property
    def place(self) -> str:
        """Its partition and offset, for display."""
        return f"{POLICY_TOPIC}-{self.partition} offset {self.offset:,}"


class LiveValueError(ValueError):
    """A key that can't live in the policy topic, or an invalid value."""


def is_topic_name(text: str) -> bool:
    """Return whether a topic can have this name."""
    return TOPIC_NAME.fullmatch(text) is not None


def check_value(key: str, value: Any) -> Any:
    """Return a live setting's value in the policy's own units.

    Raises:
        LiveValueError: there is no such live key, or the value is wrong; the text says which, and repeats no more than
            80 characters of it.
    """
    if key not in LIVE_KEYS:
        raise LiveValueError(f"{plain(key)} can't live in the policy topic; what can: {', '.join(sorted(LIVE_KEYS))}")
    if value is None:
        raise LiveValueError(f"{key} has no value: leave it out, or delete the whole message")
    try:
        model = EntryModel.model_validate({"match": ["*"], key: value})
    except ValidationError as error:
        raise LiveValueError(f"{key}: {schema_problem(error.errors(include_url=False)[0])}") from None
    return model.model_dump(by_alias=True, exclude_unset=True)[key]


def parse_value(raw: bytes) -> dict[str, Any]:
    """Return a message's JSON object.

    Raises:
        LiveValueError: it isn't one.
    """
    try:
        data = parse_json(raw.decode("utf-8"))
    except JsonContentError as error:
        raise LiveValueError(
            "sets a key twice" if error.twice else f"is not JSON: {error} is no number there"
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
    found: dict[str, Message] = {}
    notes: list[Reason] = []
    for key, message in last.items():
        topic = key.decode("utf-8", "replace")
        if message.value is None:
            continue
        if is_topic_name(topic):
            found[topic] = message
        else:
            notes.append(Reason("policy-topic", f"{message.place}: its key is no topic's name; ignored"))
    return found, notes


def read_message(topic: str, message: Message, marked: Collection[str]) -> LiveMessage:
    """Parse a message that has a value; keys other than the ``marked`` ones are wrong."""
    assert message.value is not None  # noqa: S101  (tombstones were left out)
    try:
        written = parse_value(message.value)
    except LiveValueError as error:
        return LiveMessage(topic, message, {}, {}, (str(error),))
    if not written:
        return LiveMessage(
            topic, message, {}, {}, ("sets nothing: a message without a value (a tombstone) takes settings back",)
        )
    values: dict[str, Any] = {}
    wrong: list[str] = []
    more = 0
    for key, value in written.items():
        if key not in LIVE_KEYS and len(wrong) >= _NAMED:  # there may be a hundred thousand of them
            more += 1
            continue
        try:
            values[key] = check_value(key, value)
        except LiveValueError as error:
            wrong.append(str(error))
            continue
        if key not in marked:
            wrong.append(f"the policy file does not mark {key} as cluster for it")
    if more:
        wrong.append(f"{more:,} more of its keys can't live in the policy topic")
    return LiveMessage(topic, message, written, values, tuple(wrong))


def live_settings(policy: Policy, messages: Iterable[Message]) -> LiveSettings:
    """Return the policy topic's current settings; ``messages`` are in the order of their offsets.

    A message about a topic for which the file marks nothing is ignored, with a note: it does not hold the topic.
    """
    last, notes = latest_messages(messages)
    values: dict[str, dict[str, Origin]] = {}
    unsettled: dict[str, Unknown] = {}
    for topic, message in last.items():
        marked = policy.live_keys(topic)
        if not marked:
            text = f"{message.place}, for topic {topic}: the policy file marks nothing as cluster for it; ignored"
            notes.append(Reason("policy-topic", text))
            continue
        word = read_message(topic, message, marked)
        if word.wrong:
            unsettled[topic] = Unknown(tuple(Reason("policy-topic", f"{one}; {_HELD}") for one in word.problems))
        else:
            values[topic] = {key: Origin(value, message.place) for key, value in word.values.items()}
    return LiveSettings(values=values, unsettled=unsettled, unread=None, notes=tuple(notes))


_HELD: Final = (
    "so the topic is held: correct the message with kretain policy set, or take it back with kretain policy unset"
)
