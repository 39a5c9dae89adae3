"""Read the start offsets of share groups (KIP-932): where each stands on the partitions that it has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits, OnCommits
from retention_cli.brokers.dead_letters import pointing_letters
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.groups import GROUP_ID_NOT_FOUND, find_coordinators
from retention_cli.brokers.wire.commit_answers import Commit
from retention_cli.brokers.wire.connections import Job, Wire, error_named
from retention_cli.brokers.wire.protocol import DescribeShareGroupOffsetsRequest


async def read_share_offsets(wire: Wire, groups: Sequence[str], on_group: OnCommits, deadline: float) -> None:
    """Call ``on_group`` with each share group's start offsets in the shape of commits, or why they are unknown.

    A partition that the group is set up for and has not read has start offset -1: no position, with members or without
    (F2). A group whose dead letters only point into its topics has no known position there (F3). Start offsets carry no
    leader epoch: the one in the answer is that of the group's state.
    """
    coordinators, errors = await find_coordinators(wire, groups, deadline)
    for name, error in errors.items():
        on_group(CommitsUnknown(name, str(error), None))
    told: dict[str, GroupCommits | CommitsUnknown] = {}
    work: dict[int, list[Job[str]]] = {}
    for name, broker in coordinators.items():
        asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
        work.setdefault(broker, []).append(Job(DescribeShareGroupOffsetsRequest(groups=[asked]), name))

    def on_reply(name: str, reply: Any | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            told[name] = CommitsUnknown(name, str(reply), None)
            return
        answers = [one for one in reply.groups if one.group_id == name]
        if len(answers) != 1:
            told[name] = CommitsUnknown(name, f"its coordinator named it {len(answers)} times", None)
        elif answers[0].error_code == GROUP_ID_NOT_FOUND:
            told[name] = GroupCommits(name, {})
        elif (failed := error_named(answers[0].error_code, answers[0].error_message)) is not None:
            told[name] = CommitsUnknown(name, str(failed), None)
        else:
            told[name] = _positions(name, answers[0].topics)

    await wire.fan_out(work, on_reply)
    # Behind the offsets: a letter that is written later points to what they still protect.
    pointing = await pointing_letters(wire, list(told), deadline)
    for name, one in told.items():
        why = pointing.get(name)
        on_group(one if why is None or isinstance(one, CommitsUnknown) else _in_doubt(one, why))


def _positions(name: str, topics: Sequence[Any]) -> GroupCommits | CommitsUnknown:
    found: dict[str, list[Commit]] = {}
    unset: dict[str, dict[int, int]] = {}
    for topic in topics:
        rows = found.setdefault(topic.topic_name, [])
        for one in topic.partitions:
            if (failed := error_named(one.error_code, one.error_message)) is not None:
                place = f"{topic.topic_name}-{one.partition_index}"
                return CommitsUnknown(name, f"{place}: {failed}", frozenset(other.topic_name for other in topics))
            if one.start_offset < 0:
                unset.setdefault(topic.topic_name, {})[one.partition_index] = one.start_offset
            else:
                rows.append((one.partition_index, one.start_offset, None))
    return GroupCommits(name, found, unset)


def _in_doubt(one: GroupCommits, why: str) -> CommitsUnknown:
    return CommitsUnknown(one.group, why, frozenset(one.topics), GroupCommits(one.group, {}))
