"""R5 and R6 without an inventory: estimate segments from replicas' sizes, and their times by bisecting offsets.

A replica's bytes are assumed to be spread evenly over its offsets, in segments of ``segment.bytes``; the last one is
active. Which of them are old enough is found by looking up offsets at times, all disks at once: each round halves the
time in which each disk's water level lies, and looks up each of its partitions there.

A −1 means H only if MAX_TIMESTAMP, read after H, confirms it (docs/rules.md); otherwise it counts as S, so that
nothing is trimmed. So does a missing answer, and one beyond S whose timestamp does not confirm it.

For R5 a topic's oldest records are trimmed first: the same search, with the topic in place of a disk and its leader
replicas in place of the disk's replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, Leaders, Spec
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Code, Maybe, PartitionFacts, Tail, TopicPartition, Unknown
from retention_cli.decide.decision import Limit
from retention_cli.disks.disk import Disk, Leaving, Room, topic_unknown
from retention_cli.disks.replica_sizes import NO_SEGMENT_BYTES, Sizes
from retention_cli.disks.water_level import (
    NO_END,
    UNDATED,
    DiskSegments,
    Ints,
    OldestFirst,
    Segments,
    add_up,
    bytes_on,
    oldest_first,
    wholly_below,
)
from retention_cli.policy.settings import DiskRules, Settings

MOST_ROWS: Final = 1 << 22
"""About as many segments are estimated at most: with more, several of a replica are one row."""
_LEAST_ROWS: Final = 16
_GRID_BITS: Final = 20
"""Times begin at a multiple of 2^20 ms, about 17 minutes."""
_RESOLUTION_MS: Final = 1_000
_TOLERANCE: Final = 50
"""A level that frees at most a fiftieth too much is accepted once it is known to half a minute (``_FINE_MS``)."""
_FINE_MS: Final = 1 << 15
_NO_SEGMENT_BYTES: Final = Unknown.because(Code.R6, NO_SEGMENT_BYTES.reasons[0].text)
_ROUNDS: Final = 64
"""More rounds than any bisection of times needs: it ends no matter what brokers return."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of partitions and their replicas, without an inventory.

    ``ends`` are S and H where both are known, ``decided`` the other rules' bounds, ``limits`` how far R6 may trim the
    managed partitions, ``segment_bytes`` the topics' settings that could be read. ``doubts`` are, by disk number and
    partition, why a replica's size may include dead bytes, ``dead_bytes`` how many are likely dead, and
    ``doubtful_bytes`` how many more may be. ``leaving`` are other bytes that are leaving, or may be, per disk.
    """

    ends: Mapping[TopicPartition, tuple[int, int]]
    decided: Mapping[TopicPartition, int]
    limits: Mapping[TopicPartition, Maybe[Limit]]
    segment_bytes: Mapping[str, int]
    doubts: Mapping[tuple[int, TopicPartition], Unknown]
    dead_bytes: Mapping[tuple[int, TopicPartition], int]
    doubtful_bytes: Mapping[tuple[int, TopicPartition], int]
    leaving: Sequence[Leaving]


def estimate(
    reader: ClusterReader, disks: Sequence[Disk], rules: DiskRules, known: Known, leaders: Leaders, now_ms: int
) -> OldestFirst:
    """Return how far R6 trims, by estimated segments (R6). ``known.ends`` must have been read before.

    Args:
        reader: the cluster, read-only.
        disks: all disks that could be read.
        rules: the policy's disk rules; ``percent`` is set.
        known: what is known of the replicas on the disks.
        leaders: the brokers to ask.
        now_ms: the time from which all cutoffs are calculated.
    """
    doubted = {tp: why for (_, tp), why in reversed([*known.doubts.items()])}
    limits = {
        tp: doubted.get(tp)
        or (limit if isinstance(limit, Unknown) or tp.topic in known.segment_bytes else _NO_SEGMENT_BYTES)
        for tp, limit in known.limits.items()
    }
    names = sorted({tp for disk in disks for tp in disk.replicas})
    number = {tp: n for n, tp in enumerate(names)}
    dead, doubtful = (np.zeros(len(disks) + 1, dtype=np.int64) for _ in range(2))
    rows: list[tuple[int, int, int]] = []
    for n, disk in enumerate(disks):
        for tp, size_bytes in disk.replicas.items():
            gone = min(size_bytes, known.dead_bytes.get((n, tp), 0))
            unsure = min(size_bytes - gone, known.doubtful_bytes.get((n, tp), 0))
            dead[n] += gone
            doubtful[n] += unsure
            rows.append((n, number[tp], size_bytes - gone - unsure))
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    columns = columns[np.argsort(columns[:, 1], kind="stable")]
    logs = np.array([_log(tp, known) for tp in names], dtype=np.int64).reshape(-1, 5)
    on, of, size = columns.T
    segments = estimated_segments(on, of, size, logs)
    # Segments that roll by time are smaller than segment.bytes: other rules' trims may free up to their full share.
    start = logs[:, 2]
    freed = bytes_on(segments, wholly_below(segments, start), len(disks) + 1)
    doubtful += add_up(_share(start[of], of, size, logs), on, len(disks) + 1) - freed
    times = _Times(reader, leaders, names, logs, now_ms)
    found = DiskSegments(segments, names, dead, None, known.doubts, times.dated)
    leaving = [
        one._replace(doubted_bytes=one.doubted_bytes + int(more))
        for one, more in zip(known.leaving, doubtful, strict=False)
    ]
    walked = oldest_first(found, disks, rules, dict(zip(names, start.tolist(), strict=True)), limits, leaving)
    return replace(walked, unanswered=times.unanswered)


def _log(tp: TopicPartition, known: Known) -> tuple[int, int, int, int, int]:
    """Return a partition's S, H, bound without R6, limit (-1: none), and ``segment.bytes`` (0: unknown)."""
    limit = known.limits.get(tp)
    if tp not in known.ends or limit is None:
        return 0, 0, 0, -1, 0
    start, end = known.ends[tp]
    upto = -1 if isinstance(limit, Unknown) else limit.offset
    return start, end, max(start, known.decided.get(tp, 0)), upto, known.segment_bytes.get(tp.topic, 0)


def estimated_segments(disk: Ints, partition: Ints, size_bytes: Ints, logs: Ints) -> Segments:
    """Return replicas' likely segments, without times.

    A segment ends a quarter of it later than its bytes say, as records differ in size, unless a limit or another rule's
    bound lies before: so a trim to its end is likely to free it. Replicas whose segments' size is unknown are one
    segment without an end.

    Args:
        disk: each replica's disk.
        partition: its partition. Replicas are in the order of partitions.
        size_bytes: the bytes of its live records, without dead bytes.
        logs: a row per partition: S, H, the bound without R6, the guards' limit, and ``segment.bytes`` (0: unknown).
    """
    known = logs[partition, 4] > 0
    each = np.where(known, logs[partition, 4], NO_END)
    closed = np.maximum(size_bytes - 1, 0) // each * each
    most = max(_LEAST_ROWS, MOST_ROWS // max(1, len(disk)))
    each = each * np.maximum(1, -(-(closed // each) // most))
    count = -(-closed // each) + 1  # the last one is active
    of = np.repeat(np.arange(len(disk)), count)
    before = (np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)) * each[of]
    active = before >= closed[of]
    before = np.minimum(before, closed[of])
    upto = np.where(active, size_bytes[of], np.minimum(before + each[of], closed[of]))
    log = logs[partition[of]]
    first, bound, limit, segment_records = log[:, 0], log[:, 2], log[:, 3], log[:, 4]
    records, size = np.maximum(log[:, 1] - first, 1).astype(np.float64), np.maximum(size_bytes[of], 1)
    base, end, later = (
        first + np.ceil(records * one / size).astype(np.int64)
        for one in (before, upto, np.minimum(upto + segment_records // 4, closed[of]))
    )
    later = np.where(end <= bound, end, np.clip(limit, end, np.maximum(end, later)))
    following = np.where(known[of] & ~active, later, NO_END)
    times = np.full(len(of), UNDATED, dtype=np.int64)
    return Segments(disk[of], partition[of], base, following, upto - before, times, active & known[of])


def _share(bound: Ints, partition: Ints, size_bytes: Ints, logs: Ints) -> Ints:
    """Return how many of a replica's bytes are below ``bound``, if they are spread evenly over its offsets."""
    records = np.maximum(logs[partition, 1] - logs[partition, 0], 1)
    share: Ints = (size_bytes * (np.clip(bound - logs[partition, 0], 0, records) / records)).astype(np.int64)
    return share


@dataclass(frozen=True, slots=True)
class _Times:
    """Looks up times of segments: ``logs`` has a row per partition, as in :func:`estimated_segments`.

    ``unanswered`` has the partitions whose leaders did not look up a time, with the reason.
    """

    reader: ClusterReader
    leaders: Leaders
    names: Sequence[TopicPartition]
    logs: Ints
    now_ms: int
    unanswered: dict[TopicPartition, str] = field(default_factory=dict)

    def dated(self, segments: Segments, start: Ints, limit: Ints, above: Ints) -> Segments:
        """Return the segments with times: all of a segment's records are older, as closely as water levels ask (R6).

        A partition whose newest record's time is unknown has times only as far as brokers name offsets.
        """
        s, names, count = segments, self.names, len(above)
        gone = wholly_below(s, start)
        remaining = above - bytes_on(s, gone, count)
        rows = np.flatnonzero(~gone & ~s.active & (s.next_offset <= limit[s.partition]))
        wanted = np.unique(s.partition[rows[remaining[s.disk[rows]] > 0]]).tolist()
        if not (numbers := {names[n]: n for n in wanted if names[n] in self.leaders}):
            return s
        newest, first = np.full((2, len(names)), -1, dtype=np.int64)
        specs: list[Spec] = ["max-timestamp", 0]
        answers = self.reader.list_offsets([dict.fromkeys(numbers, spec) for spec in specs], self.leaders)
        for times, answer in zip((newest, first), answers, strict=True):
            for tp, one in answer.items():
                if isinstance(one, Found) and one.timestamp is not None:
                    times[numbers[tp]] = one.timestamp
                elif isinstance(one, RequestFailedError) and one.retriable:  # brokers before 3.0 have no MAX_TIMESTAMP
                    self.unanswered[tp] = str(one)
        oldest_ms, newest_ms = _span(newest[[*numbers.values()]], first[[*numbers.values()]], self.now_ms)
        low, high = np.full(count, oldest_ms), np.full(count, newest_ms)
        open_ = (remaining > 0) & (add_up(s.size_bytes[rows], s.disk[rows], count) >= remaining)
        replicas, of = np.unique(s.disk[rows] * len(names) + s.partition[rows], return_inverse=True)
        known: dict[int, dict[int, int]] = {n: {newest_ms: int(self.logs[n, 1])} for n in wanted if newest[n] >= 0}
        for _ in range(_ROUNDS):
            middle = low + (high - low) // 2
            disk, partition = np.divmod(replicas, len(names))
            levels, level = np.unique(middle, return_inverse=True)
            pairs, pair = np.unique((partition * len(levels) + level[disk])[open_[disk]], return_inverse=True)
            if not len(pairs):
                break
            partition, times = pairs // len(levels), levels[pairs % len(levels)]
            offsets = self._offsets_at(partition, times, newest, first, numbers)
            for n, time_ms, offset in zip(partition.tolist(), times.tolist(), offsets.tolist(), strict=True):
                known.setdefault(n, {})[time_ms] = offset
            reached = np.zeros(len(replicas), dtype=np.int64)
            reached[open_[disk]] = offsets[pair]
            older = rows[s.next_offset[rows] <= reached[of]]
            freed = add_up(s.size_bytes[older], s.disk[older], count)
            enough = freed >= remaining
            high, low = np.where(open_ & enough, middle, high), np.where(open_ & ~enough, middle, low)
            close = enough & (freed <= remaining + remaining // _TOLERANCE) & (high - low <= _FINE_MS)
            open_ &= (high - low > _RESOLUTION_MS) & ~close
        largest = np.full(len(s), UNDATED, dtype=np.int64)
        ends = np.searchsorted(s.partition, np.arange(len(names) + 1))
        for n, offset_at in known.items():
            here, at = slice(ends[n], ends[n + 1]), sorted(offset_at)
            upto = np.maximum.accumulate([offset_at[one] for one in at])
            largest[here] = np.array([*at, UNDATED])[np.searchsorted(upto, s.next_offset[here])]
        return replace(s, largest_timestamp=largest)

    def _offsets_at(
        self, partition: Ints, times: Ints, newest: Ints, first: Ints, numbers: Mapping[TopicPartition, int]
    ) -> Ints:
        """Return, for each (partition, time), the offset before which all is older; S if unknown.

        The pairs are sorted. After a partition's newest record's time the offset is H, up to its first one's it is S.
        """
        after_all = (newest[partition] >= 0) & (newest[partition] < times)
        offsets: Ints = np.where(after_all, self.logs[partition, 1], self.logs[partition, 0])
        found = by_key(
            (self.names[partition[row]], row)
            for row in np.flatnonzero(~after_all & (first[partition] < times)).tolist()
        )
        wanted = {tp: rows for tp, rows in found.items() if tp in numbers}
        most = max(map(len, wanted.values()), default=0)
        requests = [{tp: rows[n] for tp, rows in wanted.items() if n < len(rows)} for n in range(most)]
        moments = [{tp: int(times[row]) for tp, row in one.items()} for one in requests]
        for one, answers in zip(
            requests, self.reader.list_offsets(moments, self.leaders) if requests else (), strict=True
        ):
            for tp, answer in answers.items():
                start, time_ms = offsets[one[tp]], times[one[tp]]
                if isinstance(answer, Found) and (answer.offset <= start or (answer.timestamp or 0) >= time_ms):
                    offsets[one[tp]] = answer.offset
                else:  # -1 is no answer here: its newest record is younger, or how old that is, is not known
                    named = isinstance(answer, RequestFailedError)
                    self.unanswered[tp] = str(answer) if named else "the broker reports no offset for that time"
        return offsets


def _span(newest: Ints, first: Ints, now_ms: int) -> tuple[int, int]:
    """Return times (Unix ms) before and after all timestamps, on a grid independent of now: equal facts, equal plans.

    Up to the oldest of the first records' times nothing would be trimmed.
    """
    oldest_ms = 0 if bool((first < 0).any()) else int(first.min()) >> _GRID_BITS << _GRID_BITS
    latest_ms = int(newest.max()) if bool((newest >= 0).all()) else max(now_ms, int(newest.max()))
    return oldest_ms, oldest_ms + (1 << max(_GRID_BITS, (latest_ms - oldest_ms).bit_length()))


_NO_SIZE: Final = Unknown.because(Code.R5, "its size could not be read")
_ALL: Final = DiskRules(percent=100.0, shared=True)
"""The rules for a topic in place of a disk: this topic alone may use all of its room."""


def estimated_tails(
    reader: ClusterReader,
    facts: Mapping[TopicPartition, PartitionFacts],
    settings: Mapping[str, Settings],
    leading: Mapping[TopicPartition, Disk],
    sizes: Sizes,
    leaders: Leaders,
    now_ms: int,
) -> dict[TopicPartition, dict[str, Maybe[Tail]]]:
    """Return R5's bounds for each partition, by the policy's key.

    Args:
        reader: the cluster, read-only.
        facts: the facts of all partitions of topics with a size limit.
        settings: the settings by topic.
        leading: the disk of each partition's leader, of the disks that could be read.
        sizes: how far replica sizes can be trusted.
        leaders: the brokers to ask.
        now_ms: the time from which all cutoffs are calculated.
    """
    logs = {tp: _led(one, leading.get(tp), tp) for tp, one in facts.items()}
    found: dict[TopicPartition, dict[str, Maybe[Tail]]] = {tp: {} for tp in facts}
    large: list[Disk] = []
    for topic, tps in by_key((tp.topic, tp) for tp in facts).items():
        most, together = settings[topic].max_bytes, settings[topic].max_topic_bytes
        if together is not None:
            held = facts[tps[0]].topic.unsized or _topic(topic, {tp: logs[tp] for tp in tps}, together, leading, sizes)
            if isinstance(held, Disk):
                large.append(held)
            for tp in tps:
                found[tp]["retention.topic.bytes"] = held if isinstance(held, Unknown) else _all_of(logs[tp])
        if most is not None:
            for tp in tps:
                found[tp]["retention.bytes"] = _tail(tp, logs[tp], leading, most, sizes)
    for tp, tail in _searched(reader, large, logs, sizes, leaders, now_ms).items() if large else ():
        found[tp]["retention.topic.bytes"] = tail
    return found


_Log = tuple[int, int, int]
"""S and H of a partition, and the bytes of its leader's replica."""


def _led(facts: PartitionFacts, leading: Disk | None, tp: TopicPartition) -> Maybe[_Log]:
    if isinstance(facts.log_start, Unknown):
        return facts.log_start
    if isinstance(facts.high_watermark, Unknown):
        return facts.high_watermark
    return _NO_SIZE if leading is None else (facts.log_start, facts.high_watermark, leading.replicas[tp])


def _all_of(log: Maybe[_Log]) -> Maybe[Tail]:
    return log if isinstance(log, Unknown) else Tail(log[0], exact=False)


def _tail(
    tp: TopicPartition, log: Maybe[_Log], leading: Mapping[TopicPartition, Disk], most_bytes: int, sizes: Sizes
) -> Maybe[Tail]:
    """Return R5's bound, assuming records of equal size; unknown if the size may include dead segments."""
    if isinstance(log, Unknown) or log[2] <= most_bytes:  # it fits, even if none of it is dead
        return _all_of(log)
    start, end, _ = log
    if isinstance(size_bytes := sizes.live_bytes(leading[tp], tp, start), Unknown):
        return size_bytes
    return Tail(estimated_tail(start, end, size_bytes, most_bytes), exact=False)


def estimated_tail(log_start: int, high_watermark: int, size_bytes: int, most_bytes: int) -> int:
    """Return the smallest offset whose tail fits into ``most_bytes``, assuming records of equal size.

    It is from S to H, and S if everything fits. ``size_bytes`` must not include dead bytes.
    """
    if size_bytes <= most_bytes:
        return log_start
    return high_watermark - most_bytes * (high_watermark - log_start) // size_bytes


def _topic(
    topic: str,
    logs: Mapping[TopicPartition, Maybe[_Log]],
    most_bytes: int,
    leading: Mapping[TopicPartition, Disk],
    sizes: Sizes,
) -> Maybe[Disk | None]:
    """Return a topic above its limit as a disk, with the bytes that are not dead; None if all of it fits.

    One unknown partition makes its topic unknown.
    """
    starts, replicas = {}, {}
    for tp, log in logs.items():
        if isinstance(log, Unknown):
            return topic_unknown(tp, log)
        starts[tp], _, replicas[tp] = log
    if sum(replicas.values()) <= most_bytes:  # even if none of it is dead
        return None
    for tp, start in starts.items():
        # the search counts only whole segments
        live = sizes.live_bytes(leading[tp], tp, start) if topic in sizes.segment_bytes else NO_SEGMENT_BYTES
        if isinstance(live, Unknown):
            return topic_unknown(tp, live)
        replicas[tp] = live
    held = sum(replicas.values())
    return Disk(-1, (topic,), Room(most_bytes, held, held), replicas)


def _searched(
    reader: ClusterReader,
    topics: list[Disk],
    logs: Mapping[TopicPartition, Maybe[_Log]],
    sizes: Sizes,
    leaders: Leaders,
    now_ms: int,
) -> dict[TopicPartition, Maybe[Tail]]:
    """Return where each partition of these topics must begin so that its topic fits.

    If a time could not be looked up in one of them, the topic is unknown: the others' younger records would go instead.
    """
    ends = {tp: log[:2] for one in topics for tp in one.replicas if not isinstance(log := logs[tp], Unknown)}
    # Triggers ignore guards: records that guards keep are not made up for by other partitions.
    limits: dict[TopicPartition, Maybe[Limit]] = {
        tp: Limit(end, Code.G1, "the high watermark") for tp, (_, end) in ends.items()
    }
    known = Known(ends, {}, limits, sizes.segment_bytes, {}, {}, {}, [Leaving()] * len(topics))
    found = estimate(reader, topics, _ALL, known, leaders, now_ms)
    lost: dict[str, Unknown] = {}
    for tp, error in sorted(found.unanswered.items()):
        why = Unknown.because(Code.R5, f"the age of its records could not be looked up: {error}")
        lost.setdefault(tp.topic, topic_unknown(tp, why))
    return {tp: lost.get(tp.topic) or Tail(found.bounds.get(tp, start), exact=False) for tp, (start, _) in ends.items()}
