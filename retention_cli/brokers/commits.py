"""Read the committed offsets of consumer groups, only stable ones, group by group."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafka.protocol.consumer import OffsetFetchRequest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.groups import GROUP_ID_NOT_FOUND, find_coordinators
from retention_cli.brokers.wire.commit_answers import BATCHED_VERSION, Answer, Commit, GroupAnswer, request
from retention_cli.brokers.wire.connections import Job, Wire, error_named
from retention_cli.core.grouping import by_key

_ROWS_A_RESPONSE: Final = 20_000
"""The largest number of rows aimed at in a response: enough to be fast, few enough to take little memory."""
_FIRST_BATCH: Final = 16
_IN_FLIGHT: Final = 4
"""Requests in flight per coordinator: their answers are the largest of all."""


@dataclass(frozen=True, slots=True)
class GroupCommits:
    """All committed offsets of a group: its rows by topic.

    ``no_position`` has stored offsets below zero, by topic and partition: only the client knows where it starts (F1).
    """

    group: str
    topics: Mapping[str, Sequence[Commit]]
    no_position: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitsUnknown:
    """A group whose offsets could not all be read. ``topics`` are those in doubt, None: any.

    ``read`` are its commits on all other topics, None if none were read. ``retriable``: asking again may succeed.
    """

    group: str
    text: str
    topics: frozenset[str] | None
    read: GroupCommits | None = None
    retriable: bool = False


OnCommits = Callable[[GroupCommits | CommitsUnknown], None]


async def read_commits(wire: Wire, groups: Iterable[str], on_group: OnCommits, deadline: float) -> None:
    """Read each group's committed offsets, and call ``on_group`` once per group, in no particular order.

    Until the deadline (of ``time.monotonic``), offsets that a pending transaction may still change are waited for
    (require_stable), and coordinators that move or load are looked up again (F3). A group that no longer exists has
    no offsets.
    """
    waiting: dict[str, CommitsUnknown] = {
        name: CommitsUnknown(name, "was not asked", None, retriable=True) for name in groups
    }
    batch_size = _FIRST_BATCH
    while waiting:
        coordinators, errors = await find_coordinators(wire, list(waiting), deadline)
        for name, error in errors.items():
            waiting[name] = CommitsUnknown(name, str(error), None, retriable=error.retriable)
        reader = _Round(waiting, on_group, batch_size)
        work = {}
        for broker, names in by_key((broker, name) for name, broker in coordinators.items()).items():
            work[broker] = reader.jobs(deque(names), batched=await takes_batches(wire, broker))
        await wire.fan_out(work, reader.on_reply, in_flight=_IN_FLIGHT)
        batch_size = reader.batch_size
        late = time.monotonic() > deadline
        for name, failure in list(waiting.items()):
            if late or not failure.retriable:
                del waiting[name]
                on_group(failure)
        if waiting:
            await wire.sleep(0.25)


class _Round:
    """One pass over the waiting groups. Groups that were read leave ``waiting``, failed ones stay with their error."""

    def __init__(self, waiting: dict[str, CommitsUnknown], on_group: OnCommits, batch_size: int) -> None:
        self.batch_size = batch_size
        self._waiting = waiting
        self._on_group = on_group

    def jobs(self, names: deque[str], *, batched: bool) -> Iterable[Job[list[str]]]:
        while names:
            batch = [names.popleft() for _ in range(min(self.batch_size, len(names)) if batched else 1)]
            yield Job(request(batch, batched=batched), batch)

    def on_reply(self, batch: list[str], reply: Answer | RequestFailedError) -> None:
        if isinstance(reply, RequestFailedError):
            for name in batch:
                self._waiting[name] = CommitsUnknown(name, str(reply), None, retriable=reply.retriable)
            return
        for answer in reply.groups:
            found = outcome_of(batch[0] if answer.group is None else answer.group, answer)
            if isinstance(found, CommitsUnknown):
                self._waiting[found.group] = found
            elif self._waiting.pop(found.group, None) is not None:
                self._on_group(found)
        rows = sum(answer.rows for answer in reply.groups)
        self.batch_size = max(1, min(1000, _ROWS_A_RESPONSE * len(batch) // max(1, rows)))


def outcome_of(name: str, answer: GroupAnswer) -> GroupCommits | CommitsUnknown:
    """Return the commits in a coordinator's answer about a group, or why they are unknown."""
    if answer.error_code == GROUP_ID_NOT_FOUND:
        return GroupCommits(name, {})
    if (error := error_named(answer.error_code)) is not None:
        return CommitsUnknown(name, str(error), None, retriable=error.retriable)
    if answer.failed is not None:
        return _row_failure(name, answer, *answer.failed)
    return GroupCommits(name, answer.commits, answer.no_position)


def _row_failure(name: str, answer: GroupAnswer, topic: str, partition: int, code: int) -> CommitsUnknown:
    """Return a group's failure for the errors of some partitions: it is unknown for their topics alone (F3)."""
    error = error_named(code) or RequestFailedError("failed", retriable=True)
    failed = answer.failed_topics
    commits = {topic: rows for topic, rows in answer.commits.items() if topic not in failed}
    unset = {topic: rows for topic, rows in answer.no_position.items() if topic not in failed}
    read = GroupCommits(name, commits, unset)
    return CommitsUnknown(name, f"{topic}-{partition}: {error}", failed, retriable=error.retriable, read=read)


async def takes_batches(wire: Wire, broker: int) -> bool:
    """Return whether the broker accepts several groups in one request (3.0 and later)."""
    version = await wire.highest_version(broker, OffsetFetchRequest.API_KEY)
    return version is None or version >= BATCHED_VERSION  # out of reach: the requests themselves will fail, too
