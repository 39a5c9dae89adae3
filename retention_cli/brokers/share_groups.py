"""Read the start offsets of share groups (KIP-932): where each stands on the partitions that it has read.

A record that a share group rejects is written to the group's dead-letter topic (KIP-1191, Kafka 4.4): by default
without its content, as a pointer to where it lies. The group's start offset has passed it by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kafka.protocol.metadata import ApiVersionsRequest

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits, OnCommits
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.groups import GROUP_ID_NOT_FOUND, find_coordinators
from retention_cli.brokers.topic_configs import Values, read_values
from retention_cli.brokers.wire.commit_answers import Commit
from retention_cli.brokers.wire.connections import Job, Wire, error_named
from retention_cli.brokers.wire.protocol import DescribeShareGroupOffsetsRequest
from retention_cli.core.grouping import by_key

_TOPIC: Final = "errors.deadletterqueue.topic.name"
_COPY: Final = "errors.deadletterqueue.copy.record.enable"
_FEATURE: Final = "share.version"
_FROM_LEVEL: Final = 2


async def read_share_offsets(wire: Wire, groups: Sequence[str], on_group: OnCommits, deadline: float) -> None:
    """Call ``on_group`` with each share group's start offsets in the shape of commits, or why they are unknown.

    A partition that the group is set up for and has not read has start offset -1: no position, with members or without
    (F2). A group whose dead letters only point into its topics has no known position there (F3). Start offsets carry no
    leader epoch: the one in the answer is that of the group's state.
    """
    coordinators, errors = await find_coordinators(wire, groups, deadline)
    for name, error in errors.items():
        on_group(CommitsUnknown(name, str(error), None))
    found_by_group: dict[str, GroupCommits | CommitsUnknown] = {}
    group_class = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup

    def job(name: str) -> Job[str]:
        return Job(DescribeShareGroupOffsetsRequest(groups=[group_class(group_id=name, topics=None)]), name)

    def on_reply(name: str, reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            found_by_group[name] = CommitsUnknown(name, str(reply), None)
            return
        answers = [one for one in reply.groups if one.group_id == name]
        if len(answers) != 1:
            found_by_group[name] = CommitsUnknown(name, f"its coordinator named it {len(answers)} times", None)
        elif answers[0].error_code == GROUP_ID_NOT_FOUND:
            found_by_group[name] = GroupCommits(name, {})
        elif (failed := error_named(answers[0].error_code, answers[0].error_message)) is not None:
            found_by_group[name] = CommitsUnknown(name, str(failed), None)
        else:
            found_by_group[name] = _positions(name, answers[0].topics)

    await wire.fan_out(by_key((broker, job(name)) for name, broker in coordinators.items()), on_reply)
    # Behind the offsets: a letter that is written later points to what they still protect.
    pointing = await _pointing_letters(wire, list(found_by_group), deadline)
    for name, one in found_by_group.items():
        why = pointing.get(name)
        if why is None or isinstance(one, CommitsUnknown):
            on_group(one)
        else:
            on_group(CommitsUnknown(name, why, frozenset(one.topics), GroupCommits(name, {})))


def _positions(name: str, topics: Sequence[Any]) -> GroupCommits | CommitsUnknown:
    found: dict[str, list[Commit]] = {}
    unset: dict[str, dict[int, int]] = {}
    for topic in topics:
        rows = found.setdefault(topic.topic_name, [])
        for one in topic.partitions:
            if (failed := error_named(one.error_code, one.error_message)) is not None:
                place = f"{topic.topic_name}-{one.partition_index}"
                doubted = frozenset(other.topic_name for other in topics)
                return CommitsUnknown(name, f"{place}: {failed}", doubted, GroupCommits(name, {}))
            if one.start_offset < 0:
                unset.setdefault(topic.topic_name, {})[one.partition_index] = one.start_offset
            else:
                rows.append((one.partition_index, one.start_offset, None))
    return GroupCommits(name, found, unset)


async def _pointing_letters(wire: Wire, groups: Sequence[str], deadline: float) -> dict[str, str]:
    """Return the share groups whose dead letters point into their topics, or may do so, and why.

    Raises:
        BrokerError: no broker answered until the deadline (of ``time.monotonic``).
    """
    if not groups or not await _has_dead_letters(wire, deadline):
        return {}
    read = await read_values(wire, "group", groups, [_TOPIC, _COPY], deadline)
    found = {name: why(values) for name, values in read.items()}
    return {name: text for name, text in found.items() if text is not None}


def why(values: Values | RequestFailedError) -> str | None:
    """Return why a group's dead letters point into its topics, or may do so; None if they don't. Pure."""
    if isinstance(values, RequestFailedError):
        return f"whether its dead letters only point into its topics is unknown: {values}"
    topic = values.get(_TOPIC)
    if topic is None:
        return "whether its dead letters only point into its topics is unknown: its broker does not say"
    if not topic or values.get(_COPY) == "true":
        return None
    return (
        f"its dead letters in {topic} only point to records here ({_COPY} is false): have them copied, or list the "
        f"group under groups.ignore"
    )


async def _has_dead_letters(wire: Wire, deadline: float) -> bool:
    """Return whether the cluster's share groups can have dead letters; True where that is not said."""

    def request() -> Any:
        return ApiVersionsRequest(client_software_name="kretain", client_software_version="0", min_version=3)

    reply = await wire.ask_any(request, deadline)
    epoch = reply.finalized_features_epoch
    if reply.error_code or epoch is None or epoch < 0:
        return True
    levels = {one.name: one.max_version_level for one in reply.finalized_features or ()}
    return bool(levels.get(_FEATURE, 0) >= _FROM_LEVEL)
