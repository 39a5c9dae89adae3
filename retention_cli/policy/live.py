"""What the policy topic says: its messages become settings per topic (DESIGN.md, The policy file). Pure.

The compacted topic ``_kretain_policy`` has a topic's name as key and JSON of settings as value. A message may
only set keys that the file marks ``cluster`` for that topic; what it may not, or can't be read, is reported with
its offset and ignored, and where it was the only word about a topic, that topic is held.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from retention_cli.model import Reason, Unknown
from retention_cli.policy.model import LiveSettings, Policy
from retention_cli.policy.schema import LIVE_KEYS, EntryModel
from retention_cli.policy.settings import Origin

POLICY_TOPIC: Final = "_kretain_policy"


class Message(NamedTuple):
    """One message of the policy topic. A value of None (a tombstone) takes a topic's settings back."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        return f"{POLICY_TOPIC}-{self.partition} offset {self.offset:,}"


class LiveValueError(ValueError):
    """A key that may not live in the cluster, or a value that is none."""


def check_value(key: str, value: Any) -> Any:
    """Return a live setting's value in the policy's own units.

    Raises:
        LiveValueError: there is no such live key, or the value is wrong; the text says which.
    """
    if key not in LIVE_KEYS:
        raise LiveValueError(f"{key} can't live in the policy topic; what can: {', '.join(sorted(LIVE_KEYS))}")
    if value is None:
        raise LiveValueError(f"{key} has no value: leave it out, or delete the whole message")
    try:
        model = EntryModel.model_validate({"match": ["*"], key: value})
    except ValidationError as error:
        said = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise LiveValueError(f"{key}: {said}") from None
    return model.model_dump(by_alias=True, exclude_unset=True)[key]


def parse_value(raw: bytes) -> dict[str, Any]:
    """Return a message's JSON object.

    Raises:
        LiveValueError: it isn't one.
    """
    try:
        data = json.loads(raw.decode("utf-8"), object_pairs_hook=_once)
    except (UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        raise LiveValueError(f"is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise LiveValueError("is not a JSON object of settings")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise LiveValueError("sets a key twice")
    return found


@dataclass(slots=True)
class _Word:
    """What has been said of one topic so far: the settings in force, and the keys of which only nonsense was said.

    ``notes`` are of the message that said what is in force, and of later ones.
    """

    values: dict[str, Origin] = field(default_factory=dict)
    nonsense: dict[str, Reason] = field(default_factory=dict)
    notes: list[Reason] = field(default_factory=list)


_ALL: Final = "*"
"""Stands for a whole message that can't be read, where no single key can be blamed."""


def live_settings(policy: Policy, messages: Iterable[Message]) -> LiveSettings:
    """Fold the topic's messages, in the order of their offsets, to what holds now."""
    words: dict[str, _Word] = {}
    notes: list[Reason] = []
    marked: dict[str, frozenset[str]] = {}
    for message in messages:
        topic = _topic_of(message, notes)
        if topic is None:
            continue
        if message.value is None:
            words.pop(topic, None)
            continue
        if topic not in marked:
            marked[topic] = policy.live_keys(topic)
        _fold(words.setdefault(topic, _Word()), message, topic, marked[topic])
    return LiveSettings(
        values={topic: word.values for topic, word in words.items()},
        unsettled={topic: Unknown(_reasons(word.nonsense)) for topic, word in words.items() if word.nonsense},
        unread=None,
        notes=(*notes, *(note for word in words.values() for note in word.notes)),
    )


def _topic_of(message: Message, notes: list[Reason]) -> str | None:
    try:
        topic = (message.key or b"").decode("utf-8")
    except UnicodeDecodeError:
        topic = ""
    if not topic:
        notes.append(Reason("policy-topic", f"{message.place}: its key is no topic's name; ignored"))
    return topic or None


def _fold(word: _Word, message: Message, topic: str, marked: frozenset[str]) -> None:
    """Lay one message over what was said before. What is wrong in it leaves what was in force there."""

    def bad(key: str, text: str) -> None:
        reason = Reason("policy-topic", f"{message.place}, for topic {topic}: {text}; ignored")
        notes.append(reason)
        if key == _ALL:
            if not word.values:
                word.nonsense[key] = reason
        elif key in word.values:
            kept[key] = word.values[key]
        else:
            nonsense[key] = reason

    kept: dict[str, Origin] = {}
    nonsense: dict[str, Reason] = {}
    notes: list[Reason] = []
    assert message.value is not None  # noqa: S101  (a tombstone never comes here)
    try:
        data = parse_value(message.value)
    except LiveValueError as error:
        bad(_ALL, str(error))
        word.notes += notes
        return
    for key, value in data.items():
        if key not in marked:
            bad(key, f"the policy file does not mark {key} as cluster for it")
            continue
        try:
            kept[key] = Origin(check_value(key, value), message.place)
        except LiveValueError as error:
            bad(key, str(error))
    if kept or not nonsense:  # some of it makes sense, or it says nothing: it replaces what was said
        word.values = kept
        word.nonsense = {key: reason for key, reason in nonsense.items() if key in marked}
        word.notes = notes
        return
    word.notes += notes
    if not word.values:
        word.nonsense = nonsense


def _reasons(nonsense: Mapping[str, Reason]) -> tuple[Reason, ...]:
    held = "nothing else is said of it there, so the topic is held: correct the message with kretain policy set"
    return tuple(Reason(one.code, f"{one.text}; {held}") for one in nonsense.values())
