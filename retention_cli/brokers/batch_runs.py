"""Read the sizes of record batches in logs from their leaders; only the batches' headers are parsed.

A leader sends batches as they are in its files, compressed or not, with transaction markers and aborted records. So the
bytes sent between two offsets are the bytes that these take in the log (R5).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kafka.protocol.consumer import FetchRequest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, Leaders, list_offsets
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.brokers.wire.batch_headers import Batch, parse
from retention_cli.brokers.wire.connections import Wire, error_named
from retention_cli.brokers.wire.frames import MAX_RESPONSE_BYTES
from retention_cli.brokers.wire.runs import Runs
from retention_cli.brokers.wire.words import NO_ANSWER
from retention_cli.core.model import TopicPartition

AT_ONCE: Final = 2
"""How many partitions of a leader are read at once."""

_ANSWER_BYTES: Final = 4 << 20
_WAIT_MS: Final = 250
_OLDEST, _NEWEST = 4, 12  # from 13 on, requests have topic ids instead of names
_BASE: Final = struct.Struct(">q")
_OUT_OF_RANGE: Final = 1
_PAUSE_S: Final = 0.25


class RunsWanted(NamedTuple):
    """Offsets from ``start`` to ``end`` (exclusive), and the least number of bytes of batches in a run.

    A batch that begins before ``start`` and contains it counts if these offsets ``begin`` the log; otherwise it belongs
    to the previous piece.
    """

    start: int
    end: int
    run_bytes: int
    begin: bool = True


async def read_runs(
    wire: Wire, wanted: Mapping[TopicPartition, RunsWanted], leaders: Leaders, on_bytes: Callable[[int], None]
) -> dict[TopicPartition, Runs | RequestFailedError]:
    """Read logs from their leaders, a few at once; return each partition's runs, or why the log could not be read.

    A failed request is sent again until the connection's time-out has passed without progress. If the log start has
    moved meanwhile, the runs read so far are dropped, and the new ones begin there.

    Args:
        wire: the connections.
        wanted: the offsets to read.
        leaders: each partition's leader.
        on_bytes: called with the number of bytes received.
    """
    found: dict[TopicPartition, Runs | RequestFailedError] = {}
    queues: dict[int, list[TopicPartition]] = {}
    for tp in sorted(wanted):
        leader = leaders[tp].leader
        if leader is None:
            found[tp] = RequestFailedError("it has no leader", retriable=True)
        else:
            queues.setdefault(leader, []).append(tp)

    async def serve(leader: int, some: list[TopicPartition]) -> None:
        while some:
            tp = some.pop(0)
            reading = _Reading(wire, tp, wanted[tp], leader, leaders[tp], on_bytes)
            try:
                found[tp] = await reading.run()
            except RequestFailedError as error:
                found[tp] = error

    await wire.together(*(serve(leader, some) for leader, some in queues.items() for _ in range(AT_ONCE)))
    return found


@dataclass(slots=True)
class _Reading:
    wire: Wire
    tp: TopicPartition
    wanted: RunsWanted
    leader: int
    about: PartitionMetadata
    on_bytes: Callable[[int], None]

    async def run(self) -> Runs:
        """Read until the end is reached; return the runs.

        Raises:
            RequestFailedError: there was no progress within the connection's time-out, or the data is not a batch.
        """
        runs, at = Runs(), self.wanted.start
        patience = time.monotonic() + self.wire.timeout_s
        while at < self.wanted.end:
            try:
                data = await self._fetch(at)
                reached = at if data is None else self._take(runs, data, at)
                trouble = RequestFailedError(f"the broker sends nothing from offset {at:,} on", retriable=True)
                if data is None:
                    runs, reached = Runs(moved=True), await self._later_start(at)
            except RequestFailedError as error:
                if not error.retriable:
                    raise
                reached, trouble = at, error
            if reached > at:
                at, patience = reached, time.monotonic() + self.wire.timeout_s
            elif time.monotonic() > patience:
                raise trouble
            else:
                await self.wire.sleep(_PAUSE_S)
        runs.end_at(self.wanted.end)
        return runs

    async def _fetch(self, at: int) -> Any | None:
        """Return batches from an offset on, the last one perhaps truncated; None if the offset is out of range."""
        partition = FetchRequest.FetchTopic.FetchPartition(
            partition=self.tp.partition,
            current_leader_epoch=self.about.leader_epoch,
            fetch_offset=at,
            partition_max_bytes=_ANSWER_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_ANSWER_BYTES,
            topics=[FetchRequest.FetchTopic(topic=self.tp.topic, partitions=[partition])],
            forgotten_topics_data=[],
            rack_id="",
            min_version=_OLDEST,
            max_version=_NEWEST,
        )
        try:
            reply = await self.wire.ask(request, self.leader)
        except RequestFailedError as failed:
            if str(failed) != NO_ANSWER:
                raise
            text = f"the batch at offset {at:,} is larger than {MAX_RESPONSE_BYTES >> 20} MiB: take an inventory"
            raise RequestFailedError(text, retriable=False) from None
        if (error := error_named(getattr(reply, "error_code", 0), needs="READ")) is not None:
            raise error
        for topic in reply.responses:
            for row in topic.partitions:
                if row.error_code == _OUT_OF_RANGE:
                    return None
                if (error := error_named(row.error_code, needs="READ")) is not None:
                    raise error
                return row.records or b""
        raise RequestFailedError("the broker left it out of its answer", retriable=True)

    def _take(self, runs: Runs, data: Any, at: int) -> int:
        """Add the complete batches in the data to the runs; return the offset that follows them."""
        place, size, upto = 0, len(data), at
        self.on_bytes(size)
        while place + _BASE.size <= size and upto < self.wanted.end:
            [base] = _BASE.unpack_from(data, place)
            one = parse(data, place, base, base)
            if not isinstance(one, Batch):
                if size - place < _ANSWER_BYTES and place:  # the last batch is truncated
                    break
                raise RequestFailedError(f"what the broker sent from offset {upto:,} on is no batch", retriable=False)
            if place + one.size > size:
                break
            if one.last_offset >= upto:
                if one.base_offset >= self.wanted.start or self.wanted.begin:
                    runs.add(one, self.wanted.run_bytes)
                upto = one.last_offset + 1
            place += one.size
        return upto

    async def _later_start(self, at: int) -> int:
        """Return the log start offset, which retention or another trimmer has moved beyond ``at``.

        Raises:
            RequestFailedError: it has not moved beyond ``at``, or could not be read.
        """
        answer = (await list_offsets(self.wire, [{self.tp: "earliest"}], {self.tp: self.about}))[0][self.tp]
        if isinstance(answer, RequestFailedError):
            raise answer
        if not isinstance(answer, Found) or answer.offset <= at:
            raise RequestFailedError(f"its log does not reach offset {at:,} any more", retriable=False)
        return answer.offset
