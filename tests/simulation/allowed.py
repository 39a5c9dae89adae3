"""The invariants: what docs/rules.md lets a delete take, by the true histories of records and groups."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence

from tests.simulation.kafka import HOUR, Group, Partition, Record, Tp, offsets_partition
from tests.simulation.truth import LOGS_CHANGE, REMEMBER_MS, YEAR_2000_MS, Reading, Rules, Truth, told

HIDES_READERS = ("a group went back", "a group came", "a member came", "offsets were deleted", "a group was deleted")
"""What no client can see of groups between its last read and a delete: it excuses what they had yet to read alone."""
CLOCK_SLACK_MS = 60_000
PAUSE_MS = 48 * HOUR


def check(truth: Truth, reading: Reading, tp: Tp, offset: int) -> None:
    """Hold one delete, about to take effect, against what the policy clearly allows."""
    log = truth.kafka.partition(tp)
    since = truth.hazards_since(tp, reading.began)
    if truth.excuses(" and ".join(sorted(since)), not since.isdisjoint({*LOGS_CHANGE, "our clock was set"})):
        return
    if truth.held_since is not None and truth.held_since < reading.began:
        _violated(truth, tp, offset, f"G7: it was on hold since event {truth.held_since}")
    if offset > log.last_stable:
        _violated(truth, tp, offset, f"G1: L is {log.last_stable}")
    if reading.shared and abs(reading.clock.off_ms) > CLOCK_SLACK_MS:
        _violated(truth, tp, offset, f"G8: our clock is {reading.clock.off_ms} ms off")
    everything = [one for one in log.log.live() if one.offset < offset and log.is_data(one)]
    gone = [one for one in everything if one.uid not in log.superseded]
    truth.excuses("compaction had removed it from one replica, and not yet from another", len(gone) < len(everything))
    if not gone:
        return
    excused = since.intersection(HIDES_READERS)
    if (why := _too_young(truth, reading, tp, log, gone)) is not None:
        _violated(truth, tp, offset, why)
    reasons = [*_triggers(truth, reading, tp, log, gone)]
    excuse = " and ".join(sorted(excused))
    if None not in reasons:
        found = "; ".join(map(str, reasons))
        if not truth.excuses(excuse, bool(excused) and ("had yet to read" in found or "no group says" in found)):
            _violated(truth, tp, offset, found)
    why = _unread(truth, reading, tp, log, gone) if reading.unconsumed.get(tp) == 0 else None
    if why is not None and not truth.excuses(excuse, bool(excused)):
        _violated(truth, tp, offset, f"unconsumed is 0, but {why}")


def _violated(truth: Truth, tp: Tp, offset: int, why: str) -> None:
    truth.violations.append(f"{tp[0]}-{tp[1]} to {offset}: {why}")


def _too_young(truth: Truth, reading: Reading, tp: Tp, log: Partition, gone: Sequence[Record]) -> str | None:
    """G3, by when records were truly written."""
    if reading.rules.wallclock_h is None:
        return None
    youngest = max(gone, key=lambda one: one.written_ms)
    age = truth.kafka.now_ms - youngest.written_ms
    if age >= reading.rules.wallclock_h * HOUR:
        return None
    topic, first = truth.kafka.topics[tp[0]], log.committed()[0]
    unseen = (
        youngest.offset >= reading.memory.created_below.get((topic.topic_id, tp[1]), 0)
        and topic.append_time
        and first.append_time
        and reading.memory.kinds.get(topic.topic_id, True)
    )
    for excuse, is_so in (
        ("a topic was switched to CreateTime and back, unseen", unseen and not youngest.append_time),
        (
            "our clock was wrong when it was noted how far the log had come",
            not youngest.append_time and reading.memory.clock_was_off,
        ),
        (
            "our clock is wrong, and there is no clock to compare it with",
            not reading.shared and age + reading.clock.off_ms >= reading.rules.wallclock_h * HOUR,
        ),
    ):
        if truth.excuses(excuse, is_so):
            return None
    return f"G3: {youngest.offset} was written {age / HOUR:.1f} h ago"


def _triggers(truth: Truth, reading: Reading, tp: Tp, log: Partition, gone: Sequence[Record]) -> Iterable[str | None]:
    """Yield, for each rule that is on, why it does not allow all of these records; None where it does."""
    rules, now = reading.rules, reading.clock.wall_ms()
    ancient = _ancient(truth, log)
    if ancient is not None and (moves := truth.moved_by_others(tp, reading.who, reading.began)):
        who = "another run" if moves[-1].who else "retention"
        truth.residues[f"stamped in seconds, behind a front that looked right until {who} deleted it"] += 1
        ancient = None
    guarded = rules.unconsumed == "hold"
    if rules.consumed_h is not None:
        yield (
            ancient
            or _unwatched(truth, reading)
            or _unread(truth, reading, tp, log, gone)
            or _not_before("R1", gone, now - rules.consumed_h * HOUR)
        )
    if rules.forced_h is not None:
        yield ancient or _not_before("R4", gone, now - rules.forced_h * HOUR)
    if rules.live:
        minimum_ms = _last_word(truth, tp[0], reading.began)
        yield ancient or (
            "R3: the policy topic's last word says none" if minimum_ms is None else _not_before("R3", gone, minimum_ms)
        )
    if rules.minimum_ms is not None:
        unread = _unread(truth, reading, tp, log, gone) if guarded else None
        yield ancient or unread or _not_before("R3", gone, rules.minimum_ms)
    if rules.event_h is not None:
        unread = _unread(truth, reading, tp, log, gone) if guarded else None
        switched = "message.timestamp.type was set" in truth.hazards_since(tp, reading.began)
        yield (None if rules.header else ancient) or unread or _event_time(truth, rules, tp, gone, switched=switched)


def _unwatched(truth: Truth, reading: Reading) -> str | None:
    """Return why R1 waits: this memory has not seen all groups for long enough, without a long pause (F10)."""
    since = truth.kafka.now_ms
    for look in sorted(reading.memory.looks, reverse=True):
        if since - look > PAUSE_MS + CLOCK_SLACK_MS:
            break
        since = min(since, look)
    watched_ms = truth.kafka.now_ms - since
    if reading.rules.watch_h is None or watched_ms + CLOCK_SLACK_MS >= reading.rules.watch_h * HOUR:
        return None
    if truth.excuses("our clock was wrong when all groups were listed", reading.memory.clock_was_off):
        return None
    return f"F10: groups have been watched for {watched_ms / HOUR:.1f} h"


def _ancient(truth: Truth, log: Partition) -> str | None:
    """Return why G9 holds. What stands at S itself decides, an aborted record or a marker too, where it is not old."""
    at_start = next(iter(log.log.live()), None)
    if at_start is not None and at_start.offset == log.log.start and at_start.stamp >= YEAR_2000_MS:
        return None
    first = next((one for one in log.committed()), None)
    if first is not None and first.stamp < YEAR_2000_MS:
        return f"G9: {first.offset} at the front is stamped {first.stamp}"
    return None


def _event_time(truth: Truth, rules: Rules, tp: Tp, gone: Sequence[Record], *, switched: bool) -> str | None:
    assert rules.event_h is not None
    append_time = truth.kafka.topics[tp[0]].append_time
    largest = truth.largest(rules.source, tp, (True, False) if switched else (append_time,))
    if not rules.header:
        why = _not_before("R2", gone, largest - rules.event_h * HOUR)
        ever = max((time_ms for key, time_ms in truth.largest_event.items() if key[0] == tp), default=0)
        if why is not None and _not_before("R2", gone, ever - rules.event_h * HOUR) is None:
            why += ", and not by an event time of other settings"
        return why
    for one in gone:
        if (time_ms := told(one.header)) is None:
            if not rules.avro:
                return f"R2: {one.offset} has no event time that can be read"
        elif time_ms < YEAR_2000_MS:
            return f"G9: {one.offset} has event time {time_ms}"
        elif time_ms >= largest - rules.event_h * HOUR:
            return f"R2: {one.offset} is only {(largest - time_ms) / HOUR:.1f} h older than the newest ever"
    return None


def _unread(truth: Truth, reading: Reading, tp: Tp, log: Partition, gone: Sequence[Record]) -> str | None:
    """Return who had yet to read some of these records (F1, F2, F4, F6), None where nobody had."""
    topic_id = truth.kafka.topics[tp[0]].topic_id
    anybody, uids = False, {one.uid for one in gone}
    for group in truth.kafka.groups.values():
        commit = group.commits.get(tp)
        live = tp[0] in group.reads(truth.kafka.now_ms)
        if not live and not any(one[0] == tp[0] for one in group.commits):
            continue
        if _waived(truth, reading, group, tp, topic_id) or _not_seen(truth, reading, group.name):
            continue
        if group.name in reading.rules.start and commit is None and not live:  # it starts some hours back (F2)
            if (why := _starts_within(truth, reading, group, gone)) is not None:
                return why
            continue
        stored, commit = commit, None if commit is not None and commit[0] < 0 else commit
        anybody = True
        unknown = commit is not None and truth.cannot_know(reading, group.name, tp, topic_id, log, commit)
        if truth.excuses("a commit of another log that looks right", unknown):
            continue
        before = reading.memory.counted.get((group.name, topic_id, tp[1]))
        looked_right = commit is None and before is not None and before.looked_right
        if truth.excuses("a commit of another log that looked right, and is gone", looked_right):
            continue
        late = _first_outside(gone, truth.released.get((group.name, tp), set()))
        went = late is not None and stored is None and not live and before is not None and late.uid in before.released
        if truth.excuses("a group went back after the last look, and is gone", went):
            continue
        if late is not None:
            how = _how(truth, reading, group, tp, known=before is not None)
            return f"{group.name} ({stored}) had yet to read {late.offset}{how}"
    if (why := _absent(truth, reading, tp, topic_id)) is not None:
        return why
    some_are_gone, why = _unread_by_gone(truth, reading, tp, topic_id, gone)
    if why is not None:
        return why
    anybody = anybody or some_are_gone
    for (_name, known_id, number, _commit), seen in reading.memory.glimpsed.items():
        if (known_id, number) == (topic_id, tp[1]) and (seen.looked_right or seen.released.issuperset(uids)):
            anybody = True
    return None if anybody else "no group says what was read"


def _unread_by_gone(
    truth: Truth, reading: Reading, tp: Tp, topic_id: str, gone: Sequence[Record]
) -> tuple[bool, str | None]:
    """Return whether any group that is gone counts here, and which had yet to read some of these records (F6)."""
    anybody = False
    for (name, known_id, number), seen in {**reading.memory.counted, **reading.seen}.items():
        if (known_id, number) != (topic_id, tp[1]) or truth.kafka.now_ms - seen.when_ms > REMEMBER_MS:
            continue
        if name in truth.kafka.groups and tp in truth.kafka.groups[name].commits:
            continue
        key = (name, known_id, number)
        forgotten = key in reading.seen and reading.memory.forgotten.get(name, -1) > reading.began
        if truth.excuses("an operator forgot a group that this run has seen, and that is gone", forgotten):
            continue
        saved = key not in reading.seen and seen.saved > reading.began
        if truth.excuses("another run saved a group that is gone after our last look", saved):
            continue
        if seen.stale:  # it was of another log; where nothing could tell, it is remembered as a position
            anybody |= truth.excuses("a commit of another log that looked right, and is gone", seen.looked_right)
            continue
        anybody = True
        late = _first_outside(gone, seen.released | truth.released.get((name, tp), set()))
        if late is not None:
            if truth.excuses("our clock was wrong when a group was last seen", reading.memory.clock_was_off):
                continue
            there = truth.kafka.groups.get(name)
            how = "" if there is None or not there.pending else f", {_PENDING_ELSEWHERE}"
            return True, f"{name}, gone since it stood at {seen.commit[0]}, had yet to read {late.offset}{how}"
    return anybody, None


def _first_outside(gone: Sequence[Record], released: Collection[int]) -> Record | None:
    return next((one for one in gone if one.uid not in released), None)


def _starts_within(truth: Truth, reading: Reading, group: Group, gone: Sequence[Record]) -> str | None:
    """Return which of these records a group would read that starts so far back now."""
    since_ms = truth.kafka.now_ms - reading.rules.start[group.name] * HOUR
    young = next((one for one in gone if one.stamp >= since_ms), None)
    if young is None:
        return None
    ahead = reading.clock.off_ms > CLOCK_SLACK_MS and not reading.shared
    if truth.excuses("our clock is ahead, and a group starts by the time", ahead):
        return None
    return f"{group.name}, which starts {reading.rules.start[group.name]} h back, had yet to read {young.offset}"


def _absent(truth: Truth, reading: Reading, tp: Tp, topic_id: str) -> str | None:
    """Return which required group has no commit here, and is not remembered either (F4)."""
    known = {key[0] for key in {**reading.memory.counted, **reading.seen} if key[1:] == (topic_id, tp[1])}
    for name in reading.rules.require:
        there = truth.kafka.groups.get(name)
        if name not in known and (there is None or tp not in there.commits):
            return f"no group says what was read: {name} is required, and has no commit"
    return None


def _not_seen(truth: Truth, reading: Reading, name: str) -> bool:
    """Return whether a group is none that this user can see, and the policy accepts that (F8, F9)."""
    outside = reading.rules.scope is not None and not name.startswith(reading.rules.scope)
    if truth.excuses("a group outside groups.scope, which the policy says reads nothing", outside):
        return True
    if not (reading.rules.hidden and truth.kafka.offsets_hidden) or name in reading.rules.require:
        return False
    number = offsets_partition(name)
    offline = truth.kafka.offsets_leaders[number][0] is None or truth.coordinators.get(number, -1) >= reading.began
    return truth.excuses("a hidden offsets topic, and a coordinator was offline", offline)


def _waived(truth: Truth, reading: Reading, group: Group, tp: Tp, topic_id: str) -> bool:
    """Return whether a missing commit of a group says nothing: it starts at the end (F2)."""
    return (
        group.name in reading.rules.latest
        and tp not in group.commits
        and tp not in group.pending
        and not truth.is_younger(reading.memory, group.name, topic_id, tp[1])
    )


_PENDING_ELSEWHERE = "with an offset that is pending elsewhere"


def _how(truth: Truth, reading: Reading, group: Group, tp: Tp, *, known: bool) -> str:
    """Say how a group came to read a partition on which it has no ordinary commit."""
    if group.commits.get(tp, (0, None))[0] < 0:
        return ", after it stored an offset below zero"
    if tp in group.commits:
        return ""
    live = group.listed(truth.kafka.now_ms)
    for what, is_so in (
        (
            "rebalancing, with an offset that is pending",
            group.rebalancing and bool(group.pending) and tp not in group.pending,
        ),
        ("its first offset is pending", tp in group.pending),
        ("which changed its protocol", truth.upgraded.get(group.name, -1) >= reading.began),
        ("while the offsets topic is hidden", truth.kafka.offsets_hidden),
        ("by a regular expression", group.pattern is not None and tp[0] not in live),
        ("on a partition that was added", group.name in reading.rules.latest),
        ("by a live member without a commit, where one is remembered", known and tp[0] in live),
    ):
        if is_so:
            return f", {what}"
    return ""


def _not_before(rule: str, gone: Sequence[Record], time_ms: int) -> str | None:
    young = next((one for one in gone if one.stamp >= time_ms), None)
    return (
        None if young is None else f"{rule}: {young.offset} is stamped {(young.stamp - time_ms) / HOUR:.1f} h too late"
    )


def _last_word(truth: Truth, topic: str, before: int) -> int | None:
    """Return the minimum that the last message about a topic says, None where it says none that can be understood.

    Those written after a recheck began it cannot have seen.
    """
    words = [value for key, value, number in truth.kafka.policy_messages if key == topic.encode() and number <= before]
    try:
        told = json.loads(words[-1] or b"{}") if words else {}
    except ValueError:
        return None
    minimum = told.get("log.retention.min.timestamp")
    return minimum if isinstance(minimum, int) else None
