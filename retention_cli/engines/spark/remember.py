"""Write what tasks have seen to the ledger. Only the client does this, a cluster at a time (docs/memory.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, NotFound
from retention_cli.brokers.topic_configs import TopicConfig
from retention_cli.core.clock import SYSTEM
from retention_cli.core.model import Maybe, Sample, TopicPartition, Unknown
from retention_cli.engines.spark.jobs import NOTHING
from retention_cli.engines.spark.prepare import Prepared
from retention_cli.engines.spark.recalling import created_now
from retention_cli.engines.spark.slice_memory import KnownGroup, ReadCommits
from retention_cli.memory.documents import memory_from_bytes
from retention_cli.memory.interface import NO_LOG, LogNow
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.lineage import Cut, prove
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.plain_look import PlainLook
from retention_cli.observe.recall import log_now

_JUDGED_COMMITS: Final = 1_000_000
"""So many commits that were read and not judged yet are kept in memory, some 20 bytes each."""


class SeenPartition(NamedTuple):
    """A partition as a task has seen it: columns of ``schemas.CHUNK``, by their names."""

    at: int
    topic: str
    topic_id: str | None
    partition: int
    leader_epoch: int
    log_start: int | None
    high_watermark: int
    read_ms: int
    memory: bytes | None
    doubt: bool
    ends: list[dict[str, Any]] | None


class Logs:
    """What this run has read of a cluster's logs, to judge the commits on them (F5).

    ``stamped`` are the positions of which the ledger knows by now who stamps their records.
    """

    def __init__(self, one: Prepared) -> None:
        self._places = one.job.places
        self._ends = np.full(len(self._places), -1, np.int64)
        self._epochs, self._last_epochs = (np.full(len(self._places), NOTHING, np.int32) for _ in range(2))
        self._odd: dict[int, LogNow] = {}
        self.stamped = np.zeros(len(self._places), bool)
        self.topics: set[str] = set()
        self.cuts: list[TopicPartition] = []

    def plain(self, at: Any, high_watermarks: Any, leader_epochs: Any, last_epochs: Any) -> None:
        """Note logs of which nothing else is to be said, by position."""
        self._ends[at], self._epochs[at], self._last_epochs[at] = high_watermarks, leader_epochs, last_epochs
        self.topics.update(self._places.names[index] for index, _ in self._places.by_topic(at))

    def add(self, tp: TopicPartition, at: int, log: LogNow) -> None:
        """Note a log of a partition, at a position."""
        self.topics.add(tp.topic)
        if log.cut is not None:
            self.cuts.append(tp)
        if log.last_epoch is None or log != LogNow(log.high_watermark, log.leader_epoch, last_epoch=log.last_epoch):
            self._odd[at] = log
        else:
            self._ends[at], self._epochs[at] = log.high_watermark, log.leader_epoch
            self._last_epochs[at] = log.last_epoch

    def get(self, place: tuple[str, int]) -> LogNow | None:
        """Return a partition's log, None if it was not read (:data:`retention_cli.memory.interface.LogOf`)."""
        at = self._places.position(*place)
        if at is None:
            return None
        if at in self._odd or self._ends[at] < 0:
            return self._odd.get(at)
        return LogNow(int(self._ends[at]), int(self._epochs[at]), last_epoch=int(self._last_epochs[at]))

    def of_topic(self, topic: str) -> tuple[list[int], list[int]]:
        """Return the plain logs of a topic (:data:`retention_cli.memory.interface.PlainLogs`)."""
        if (index := self._places.index(topic)) is None:
            return [], []
        some = self._places.topic(index)
        numbers, known = self._places.numbers[some], self._ends[some]
        ends, proves = (
            np.full(int(numbers.max(initial=-1)) + 1, NO_LOG),
            np.zeros(int(numbers.max(initial=-1)) + 1, int),
        )
        ends[numbers], proves[numbers] = np.where(known < 0, NO_LOG, known), self._last_epochs[some]
        return ends.tolist(), proves.tolist()


def remember(
    one: Prepared,
    chunks: Iterable[Any],
    groups: Iterable[tuple[str, bytes | None]],
    known: Callable[[], Mapping[str, KnownGroup]],
) -> None:
    """Record high watermarks and when they were read, and which commits count (F5, F6); save the ledger.

    Reading takes minutes. What another run has seen and saved meanwhile may be later than what was read here, and
    stays: of a partition as it is, of a group by when its commits were read.

    Args:
        one: the cluster.
        chunks: its rows, Arrow tables of ``schemas.CHUNK`` in order.
        groups: the groups that were read: rows of kind ``memory`` of ``schemas.READ``.
        known: returns what the ledger had of the groups when they were read.
    """
    ledger, memories = one.memory, one.target.memories
    if not isinstance(ledger, Ledger) or memories is None:
        return
    with ledger.sparing():
        logs = Logs(one)
        for chunk in chunks:
            _remember_chunk(one, chunk, logs)
        note_create_time(one, logs.stamped)
        ledger.saw_topics({topic_id: name for name, topic_id in one.job.topic_ids.items() if name in one.job.settings})
        waiting = 0
        for count in saw_groups(one, groups, known):
            waiting += count
            if waiting > _JUDGED_COMMITS and not logs.cuts:  # a cut is judged for all groups at once
                ledger.judge(logs.get, logs.topics, (), logs.of_topic)
                waiting = 0
        ledger.judge(logs.get, logs.topics, logs.cuts, logs.of_topic)
        memories.save(SYSTEM.wall_ms())


def saw_groups(
    one: Prepared, groups: Iterable[tuple[str, bytes | None]], known: Callable[[], Mapping[str, KnownGroup]]
) -> Iterator[int]:
    """Note groups that tasks have read, and their commits; yield how many each has. Nothing is saved.

    The arguments are those of :func:`remember`.
    """
    ledger, now_ms = one.memory, SYSTEM.wall_ms()
    if not isinstance(ledger, Ledger):
        return
    since_ms = now_ms - one.job.groups.remember_ms
    before: Mapping[str, KnownGroup] | None = None
    for name, raw in groups:
        if raw is None:
            ledger.saw_again(name, one.listed_ms)  # not later than that: what others have read since is newer (F6)
            continue
        read = ReadCommits.from_bytes(raw)
        if ledger.others_wrote:
            before = known() if before is None else before
            there = before.get(name)
            ledger.saw_group_earlier(name, read.rows(), read.digest, read.read_ms, None if there is None else there[2:])
        elif ledger.saw_columns(name, read.columns, read.digest, read.read_ms) is None:
            ledger.saw_group(name, read.rows(), read.read_ms, since_ms, read.digest)
        yield read.size


def _remember_chunk(one: Prepared, chunk: Any, logs: Logs) -> None:
    stands, proofs = _stands(one, chunk), one.recalled.proofs
    if stands.any():
        rows = chunk.filter(stands)
        at, ends, epochs = (rows.column(name).to_numpy() for name in ("at", "high_watermark", "leader_epoch"))
        logs.plain(at, ends, epochs, [] if proofs is None else proofs.last_epochs[at])
    read = chunk.column("high_watermark").is_valid().to_numpy()
    moved = chunk.filter(read & ~stands).select(SeenPartition._fields)
    odd = moved.filter(~_remember_plain(one, moved, logs))
    seen = list(map(SeenPartition._make, zip(*(column.to_pylist() for column in odd.columns), strict=True)))
    theirs = _written_by_others(one, seen)
    for row in seen:
        if row.at in theirs:
            continue
        ends = {end["leader_epoch"]: _answer(end) for end in row.ends or ()}
        cut: Maybe[Cut | None] = Unknown(()) if row.doubt else None
        if row.topic_id is not None and cut is None:
            cut = remember_partition(one, row, ends)
        if not isinstance(cut, Unknown):
            log = log_now(
                row.high_watermark,
                row.leader_epoch,
                frozenset(epoch for epoch, end in ends.items() if isinstance(end, NotFound)),
                frozenset(epoch for epoch, end in ends.items() if isinstance(end, RequestFailedError)),
                cut,
                _last_epoch(one, row),
            )
            logs.add(TopicPartition(row.topic, row.partition), row.at, log)


def _remember_plain(one: Prepared, moved: Any, logs: Logs) -> Any:
    """Remember the rows of which nothing is odd, a topic's at once; return which they are."""
    done = np.zeros(len(moved), bool)
    if one.cuts or not len(moved) or not isinstance(one.memory, Ledger):
        return done
    plain = moved.column("log_start").is_valid().to_numpy() & ~moved.column("doubt").to_numpy()
    for name in ("memory", "ends"):
        plain &= moved.column(name).is_null().to_numpy()
    wall_ms = max(*moved.column("read_ms").to_pylist(), SYSTEM.wall_ms())  # a later time is just as valid (G3)
    at, starts, ends, epochs, numbers = (
        moved.column(name).fill_null(-1).to_numpy()
        for name in ("at", "log_start", "high_watermark", "leader_epoch", "partition")
    )
    topics, ids = (moved.column(name).combine_chunks().dictionary_encode() for name in ("topic", "topic_id"))
    names, known_as = topics.dictionary.to_pylist(), ids.dictionary.to_pylist()
    named, identified = topics.indices.to_numpy(), ids.indices.fill_null(-1).to_numpy()
    for number in np.flatnonzero(np.bincount(named[plain], minlength=len(names))).tolist():
        some = np.flatnonzero(plain & (named == number))
        id_at = np.unique(identified[some])
        if len(id_at) != 1 or id_at[0] < 0:
            continue
        columns = (column[some].tolist() for column in (numbers, epochs, starts, ends))
        looks = list(map(PlainLook._make, zip(*columns, strict=True)))
        created = created_now(one.job, names[number])
        last = one.memory.saw_logs(names[number], known_as[id_at[0]], looks, wall_ms, created=created)
        taken = np.array([epoch is not None for epoch in last], bool)
        theirs = some[taken]
        if len(theirs):
            logs.plain(at[theirs], ends[theirs], epochs[theirs], [epoch for epoch in last if epoch is not None])
            logs.stamped[at[theirs]] = True
            done[theirs] = True
    return done


def _written_by_others(one: Prepared, rows: Iterable[SeenPartition]) -> frozenset[int]:
    """Return the positions of which another run has written since this one began.

    Its look is of the same log, but maybe later: it would seem that the log was cut back to where it ended here (M2).
    """
    mine = {
        row.at: one.memory.partition(row.topic, row.topic_id, row.partition) for row in rows if row.topic_id is not None
    }  # from the file as it is now, unless all was read when this run began
    if not mine or not isinstance(one.memory, Ledger) or not one.memory.others_wrote:
        return frozenset()
    began = one.recalled.at(np.array(list(mine)))
    return frozenset(at for at, before in zip(mine, began, strict=True) if _proof(before) != _proof(mine[at]))


def _proof(known: PartitionMemory | None) -> tuple[Any, ...] | None:
    if known is None or known.leader_epoch is None:
        return None
    return known.leader_epoch, known.last_epoch, known.log_start, known.high_watermark, known.earlier


def _stands(one: Prepared, chunk: Any) -> Any:
    """Return which partitions are as the ledger has them: there is nothing to prove of them, or to add."""
    proofs, columns = one.recalled.proofs, {name: chunk.column(name) for name in SeenPartition._fields}
    if proofs is None or one.cuts:
        return np.zeros(len(chunk), bool)
    at = columns["at"].to_numpy()
    stands = proofs.stands[at]
    for name, known in (
        ("high_watermark", proofs.high_watermarks),
        ("log_start", proofs.log_starts),
        ("leader_epoch", proofs.leader_epochs),
    ):
        stands &= columns[name].fill_null(-1).to_numpy() == known[at]
    for name in ("memory", "ends"):
        stands &= columns[name].is_null().to_numpy()
    return stands & ~columns["doubt"].to_numpy()


def note_create_time(one: Prepared, stamped: Any | None = None) -> None:
    """Record which topics are CreateTime, even if a log could not be read: that can only keep more records (G3).

    ``stamped`` are the positions of which it is recorded already.
    """
    places = one.job.places
    for index, name in enumerate(places.names):
        config, topic_id = one.job.configs.get(name), places.ids[index]
        if isinstance(config, TopicConfig) and config.timestamp_type == "CreateTime" and topic_id is not None:
            some = places.topic(index)
            known = np.zeros(some.stop - some.start, bool) if stamped is None else stamped[some]
            if one.recalled.proofs is not None:
                known = known | one.recalled.proofs.created[some]
            for number in places.numbers[np.flatnonzero(~known) + some.start].tolist():
                one.memory.partition(name, topic_id, number).saw_stamps(0, append_time=False)


def _last_epoch(one: Prepared, row: SeenPartition) -> int | None:
    if row.topic_id is None:
        return None
    return one.memory.partition(row.topic, row.topic_id, row.partition).last_epoch


def remember_partition(one: Prepared, row: SeenPartition, ends: Mapping[int, Answer]) -> Maybe[Cut | None]:
    """Record a partition's facts; return where its log was cut (None: nowhere), unknown if that can't be verified."""
    assert row.topic_id is not None  # noqa: S101  (else nothing is remembered)
    cut = one.cuts.get(TopicPartition(row.topic, row.partition))
    mine = one.memory.partition(row.topic, row.topic_id, row.partition)
    if row.log_start is not None:
        proven = prove(mine, row.leader_epoch, row.log_start, row.high_watermark, ends, row.read_ms)
        if isinstance(proven, Unknown):
            return proven
        cut = cut or proven
    if row.memory is not None:  # a task has updated the partition's record
        mine.take(memory_from_bytes(row.memory))
        mine.changed = True
    mine.add_sample(
        Sample(max(row.read_ms, SYSTEM.wall_ms()), row.high_watermark)
    )  # a later time is just as valid (G3)
    config = one.job.configs.get(row.topic)
    if isinstance(config, TopicConfig) and config.timestamp_type is not None:
        mine.saw_stamps(row.high_watermark, append_time=config.timestamp_type == "LogAppendTime")
    return cut


def _answer(row: Mapping[str, Any]) -> Answer:
    if row["text"] is not None:
        return RequestFailedError(row["text"], retriable=True)
    return NotFound() if row["end"] is None else Found(row["end"])
