"""The policy topic: read and change the settings that the file marks ``cluster``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import WRITE, ClusterReader
from retention_cli.brokers.writer import ClusterWriter
from retention_cli.core.commands import kafka_tool
from retention_cli.core.model import Reason, Unknown
from retention_cli.policy.model import LiveSettings, Policy

if TYPE_CHECKING:
    from retention_cli.policy.live import Message

_ROUNDS: Final = 5
_NOTED: Final = 5
"""A plan names this many messages without effect, and counts the others."""


def with_live(reader: ClusterReader, policy: Policy) -> Policy:
    """Return the policy with the policy topic's current settings; unchanged if it marks none ``cluster``.

    Settings that can't be read are unknown, and hold the topics that need them.
    """
    return replace(policy, live=read_live(reader, policy)) if policy.any_live else policy


def read_live(reader: ClusterReader, policy: Policy) -> LiveSettings:
    """Return the current settings, from the whole policy topic."""
    from retention_cli.policy.live import live_settings

    try:
        messages = read_messages(reader)
    except BrokerError as error:
        return LiveSettings(unread=Unknown.because("policy-topic", f"settings marked cluster are unknown: {error}"))
    live = live_settings(policy, messages)
    if len(live.notes) <= _NOTED:
        return live
    more = f"{len(live.notes) - _NOTED:,} more messages of the policy topic are ignored: kretain policy list shows them"
    return replace(live, notes=(*live.notes[:_NOTED], Reason("policy-topic", more)))


def read_messages(reader: ClusterReader) -> list[Message]:
    """Return every message of the policy topic, in order.

    Raises:
        BrokerError: it does not exist, can't be read, or does not have exactly one partition, so the order of its
            messages is unknown.
    """
    from retention_cli.policy.live import POLICY_TOPIC
    from retention_cli.state.own_topics import look_at, read_stored

    _, ranges = look_at(reader, POLICY_TOPIC)
    if len(ranges) != 1:
        raise BrokerError(
            f"topic {POLICY_TOPIC} has {len(ranges)} partitions, not 1, so the order of its messages is unknown: "
            f"delete it ({kafka_tool('kafka-topics.sh', '--delete', '--topic', POLICY_TOPIC)}) "
            "and run kretain cluster init again"
        )
    return read_stored(reader, ranges)


@dataclass(frozen=True, slots=True)
class Changed:
    """A topic's new message: its settings (None: it was deleted), its offset, and the settings it corrected.

    A dry run has no partition and no offset.
    """

    topic: str
    values: dict[str, Any] | None
    partition: int | None
    offset: int | None
    corrected: tuple[str, ...] = ()


def change(
    reader: ClusterReader,
    writer: ClusterWriter,
    policy: Policy | None,
    topic: str,
    edit: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    dry_run: bool = False,
) -> Changed:
    """Edit a topic's settings, as they were written, in one message; a tombstone if no setting is left.

    Invalid settings in the current message held the topic: they are left out of the new one, and returned
    (``corrected``). If another writer's message about the topic lands in between, the edit is applied to that one, too.
    A ``dry_run`` writes nothing.

    Raises:
        LiveEditError: the edit was refused, and nothing was written; or others kept writing about the topic.
        BrokerError: the policy topic does not exist, or can't be read or written.
    """
    from retention_cli.policy.live import POLICY_TOPIC, LiveEditError, check_topic, last_message, valid_settings

    check_topic(topic)
    reader.check_offers(WRITE, "live settings can't be changed")
    ours: set[int] = set()
    for _ in range(_ROUNDS):
        messages = [one for one in read_messages(reader) if one.offset not in ours]
        word = last_message(messages, policy, topic)
        after = valid_settings(policy, topic, edit({} if word is None else dict(word.written)))
        if not after and word is None:
            raise LiveEditError(f"the policy topic has no settings for topic {topic}")
        corrected = () if word is None else word.problems
        if dry_run:
            return Changed(topic, after or None, None, None, corrected)
        value = json.dumps(after, ensure_ascii=False, sort_keys=True).encode() if after else None
        at = writer.append(POLICY_TOPIC, topic.encode(), value)
        ours.add(at.offset)
        last = messages[-1].offset if messages else -1
        between = [one for one in read_messages(reader) if last < one.offset < at.offset and one.key == topic.encode()]
        if all(one.offset in ours for one in between):
            return Changed(topic, after or None, at.partition, at.offset, corrected)
    raise LiveEditError(
        f"another client keeps writing settings of topic {topic}: this one is at offset {at.offset:,}, and "
        f"its settings may be lost: see kretain policy list"
    )
