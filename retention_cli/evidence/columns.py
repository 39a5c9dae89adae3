"""Decide recorded rows by columns, as :func:`~retention_cli.decide.decision.decide` does one by one. Pure.

That is R1, R3 and R4 with G1, G2, G5, G7, G9 and F10, where every fact is known and has no notes, or the floor alone is
unknown. A row where more matters is not ``plain``, and is left to ``decide``.

Under another policy too (:class:`Deciding`): by columns where R1 alone is on, else row by row. Facts are those of the
evidence. One that the recorded policy did not ask for, or asked for otherwise, is unknown, and holds. If a look-up for
the new cutoff is missing, its answer lies between those for an earlier and a later cutoff: if both give the same
decision, that is the decision; else it is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from retention_cli.core.extras import arrow
from retention_cli.core.json_values import loads
from retention_cli.core.model import (
    ANCIENT_MS,
    Code,
    Decision,
    LookUp,
    Maybe,
    PartitionFacts,
    Reason,
    TopicFacts,
    Unknown,
    Usage,
    known,
)
from retention_cli.decide.decision import decide, held_by_disks
from retention_cli.decide.guards import frozen, untouchable
from retention_cli.decide.topic_rules import TopicRules
from retention_cli.decide.triggers import TRIGGERS
from retention_cli.decide.triggers.consumed import forced_retention_conflict, live_retention
from retention_cli.evidence.format import EvidenceError, coded, from_json, rows_of
from retention_cli.evidence.value import NONE, Numbers, Row
from retention_cli.policy.model import Policy
from retention_cli.policy.settings import DiskRules, Settings

Mask = npt.NDArray[np.bool_]
ACTIONS: Final = ("trim", "keep", "hold", "skip")
TRIM, KEEP, HOLD, SKIP = range(4)
RULES: Final = ("consumed", "min-timestamp", "forced-age")
LIMITS: Final = (Code.G1, Code.G2)
WHY_BITS: Final = 13
_FROZEN, _UNKNOWN, _ASKS = range(4, 7)
_BIG: Final = 2**62  # two of these can be added


class Kind(NamedTuple):
    """What topics' facts and settings amount to, by row: 1 for yes, and times in ms, −1 for a rule that is off.

    ``fixed`` is the decision that needs no rule, ``refused``: R1 is an error, ``blind``: the floor is of other groups.
    """

    plain: Numbers
    fixed: Numbers
    consumed_ms: Numbers
    minimum_ms: Numbers
    forced_ms: Numbers
    watch_ms: Numbers
    refused: Numbers
    guarded: Numbers
    forced_guarded: Numbers
    allow_ancient: Numbers
    allow_empty: Numbers
    blind: Numbers


OTHER: Final = (0,) * len(Kind._fields)
"""Of it more matters."""


def fixed_kind(action: int) -> tuple[int, ...]:
    """Return the :class:`Kind` of topics that need no rule."""
    return (1, action, *[NONE] * 4, *[0] * 6)


def kind_of(topic: TopicFacts, settings: Settings, *, blind: bool = False) -> tuple[int, ...]:
    """Return a topic's :class:`Kind` under settings."""
    bare = PartitionFacts(topic, 0, 0, 0, 0, Unknown(()))
    touch, after_ms, guarded = untouchable(topic, settings), settings.consumed_after_ms, settings.unconsumed == "hold"
    if isinstance(touch, Reason):
        return fixed_kind(SKIP)
    if frozen(settings) is not None:
        return fixed_kind(_FROZEN)
    unknown = any(isinstance(one, Unknown) for one in (settings.unsettled, touch, topic.topic_id))
    times = [after_ms, settings.min_timestamp_ms, settings.forced_age_ms, settings.watch_first_ms]
    if (
        settings.min_wallclock_ms is not None
        or settings.whole_segments
        or any(one is not None and not 0 <= one < _BIG for one in times)
        or any(one.on(bare, settings) for one in TRIGGERS if one.code not in (Code.R1, Code.R3, Code.R4))
    ):
        return OTHER
    refused = after_ms is not None and forced_retention_conflict(
        after_ms, live_retention(topic), settings.forced_age_ms
    )
    return (
        *(
            1,
            _UNKNOWN if unknown else _ASKS,
            *(NONE if one is None else one for one in times),
            refused not in (None, False),
            guarded,
        ),
        *(guarded and settings.forced_age_guarded, settings.allow_ancient, settings.allow_empty, blind),
    )


def numbers(table: Any, name: str) -> Numbers:
    """Return a column of numbers, −1 where there is none."""
    return cast(Numbers, table.column(name).fill_null(NONE).to_numpy().astype(np.int64))


def keys_of(number: str, *tables: Any) -> Numbers:
    """Return a number for each row of tables, the same where topic, partition and a column of numbers are."""
    pa, found = arrow(), np.zeros(1, np.int64)
    for name in ("topic", "partition", number):
        both = pa.concat_tables([one.select([name]) for one in tables]).column(name).combine_chunks()
        both = both.dictionary_encode().indices if name == "topic" else both
        one = both.fill_null(NONE).to_numpy().astype(np.int64)
        one -= one.min(initial=0)
        if found.max(initial=0) >= _BIG // (span := one.max(initial=0) + 1):
            found = np.unique(found, return_inverse=True)[1]
        found = found * span + one
    return found


def row_indexes(wanted: Any, have: Any, number: str) -> Numbers:
    """Return where each row of a table is in another one by :func:`keys_of`: the first one, −1: nowhere."""
    keys = keys_of(number, wanted, have)
    keys, others = keys[: len(wanted)], keys[len(wanted) :]
    order = np.argsort(others, kind="stable")
    at = np.append(order, NONE)[np.searchsorted(others[order], keys)]
    found = np.append(others, NONE)[at] == keys
    return np.where(found & wanted.column(number).is_valid().to_numpy(), at, NONE)


class Looked(NamedTuple):
    """The look-ups of a table, one after the other: of which row, for which time, and what they gave."""

    row: Numbers
    at: Numbers
    offset: Numbers
    data: Mask


class Facts(NamedTuple):
    """Facts by row. ``group`` is the number of its topic's facts, settings, and what is odd about it.

    ``sound``: S, H, the epoch and the floor are those of the columns, or the floor is ``lost``: unknown.
    """

    kind: Kind
    group: Numbers
    plain: Mask
    sound: Mask
    lost: Mask
    start: Numbers
    end: Numbers
    stable: Numbers
    floor: Numbers
    now: Numbers
    since: Numbers
    looked: Looked

    @classmethod
    def of(cls, table: Any, kind: Callable[[str, str], tuple[int, ...]]) -> Facts:
        """Return those of a recheck's table, given what returns the :class:`Kind` of a topic's facts and settings."""
        (topics, about), (settings, chosen), (more, code) = (
            coded(table, name) for name in ("topic_facts", "settings", "more")
        )
        groups, group = np.unique((about * len(settings) + chosen) * (len(more) + 1) + code + 1, return_inverse=True)
        pairs = (groups // (len(more) + 1)).tolist()
        if min(about.min(initial=0), chosen.min(initial=0)) < 0:
            raise EvidenceError("a row has no topic_facts, or no settings")
        kinds = [kind(topics[one // len(settings)], settings[one % len(settings)]) for one in pairs]
        found = Kind(*np.array(kinds, np.int64).reshape(-1, len(Kind._fields)).T[:, group])
        sound, lost, alone = np.array([*map(_parsed_more, more), (True, False, True)]).T[:, code]
        start, end, stable, floor, now, since = (
            numbers(table, name)
            for name in ("log_start", "high_watermark", "last_stable_offset", "floor", "now_ms", "watched_since_ms")
        )
        plain: Mask = (found.plain == 1) & alone & (now >= 0) & (now < _BIG) & (since < _BIG)
        plain &= (np.minimum(np.minimum(start, end), stable) >= 0) & ((floor >= 0) | lost)
        plain |= (found.plain == 1) & ((found.fixed == SKIP) | (found.fixed == _FROZEN))
        floor = np.where(lost | (found.blind == 1), NONE, floor)
        return cls(found, group, plain, sound, lost, start, end, stable, floor, now, since, _looked(table))

    def lookup_times(self) -> list[Numbers]:
        """Return the times whose look-ups matter: R1's, R3's, R4's, and 2000-01-01. Those of R3 are of data."""
        kind, now = self.kind, self.now
        times = (
            (kind.consumed_ms, now - kind.consumed_ms),
            (kind.minimum_ms, kind.minimum_ms),
            (kind.forced_ms, now - kind.forced_ms),
            (-kind.allow_ancient, np.full_like(now, ANCIENT_MS)),
        )
        return [np.where(on < 0, NONE, at) for on, at in times]  # before 1970 there is nothing

    def looked_up(self) -> list[Numbers]:
        """Return what they gave."""
        return [self._exact(at, data=n == 1) for n, at in enumerate(self.lookup_times())]

    def _exact(self, at: Numbers, *, data: bool) -> Numbers:
        one, found = self.looked, np.where(at <= 0, 0, NONE)
        this = (one.data == data) & (one.at == at[one.row]) & (one.at > 0)
        found[one.row[this]] = one.offset[this]
        return found

    def between(self, exact: Sequence[Numbers]) -> tuple[list[Numbers], list[Numbers]]:
        """Return the least and the most that they allow: where one was not made, by those of other times."""
        least, most = [], []
        for n, (at, proven) in enumerate(zip(self.lookup_times(), exact, strict=True)):
            one, low, high = self.looked, np.zeros_like(self.end), self.end.copy()
            same = one.data == (n == 1)
            before, after = same & (one.at < at[one.row]), same & (one.at > at[one.row]) & (one.at != ANCIENT_MS)
            np.maximum.at(low, one.row[before], one.offset[before])
            np.minimum.at(high, one.row[after], one.offset[after])
            ends = [np.where(proven < 0, one, proven) for one in (low, np.maximum(low, high))]
            least.append(ends[n == _FRONT])
            most.append(ends[n != _FRONT])
        return least, most


_FRONT: Final = 3  # of 2000-01-01 the larger offset allows less (G9)


_OF_COLUMNS: Final = ("log_start", "high_watermark", "leader_epoch", "floor")


def _parsed_more(more: str) -> tuple[bool, bool, bool]:
    """Return whether a row is sound by its ``more``, whether its floor is lost, and whether nothing else is odd."""
    if "\\" not in more and not any(name in more for name in _OF_COLUMNS):  # most rows need no parser here
        return True, False, False
    if not isinstance(found := loads(more), dict):
        raise EvidenceError("the column more of a row is not a JSON object")
    floor = found.get("floor")
    lost = isinstance(floor, dict) and [*floor] == ["reasons"]
    return found.keys().isdisjoint(_OF_COLUMNS[: -1 if lost else None]), lost, lost and len(found) == 1


def _looked(table: Any) -> Looked:
    column = table.column("lookups").combine_chunks()
    values = column.flatten()
    at, offset = (values.field(name).fill_null(NONE).to_numpy(zero_copy_only=False) for name in ("at_ms", "offset"))
    row = np.repeat(np.arange(len(table)), np.diff(column.offsets.to_numpy()))
    return Looked(row, at, offset, values.field("data").to_numpy(zero_copy_only=False))


class Decided(NamedTuple):
    """Decisions by row: places in :data:`ACTIONS`, :data:`RULES` and :data:`LIMITS`, and where the log is to start.

    ``why`` is the same for rows of a group whose reasons are the same.
    """

    action: Numbers
    target: Numbers
    rule: Numbers
    limited_by: Numbers
    why: Numbers


def decide_columns(facts: Facts, offsets: Sequence[Numbers]) -> Decided:
    """Return the decision for each plain row, given what look-ups gave, as in :meth:`Facts.looked_up`."""
    kind, start, floor = facts.kind, facts.start, facts.floor
    consumed, minimum, forced, front = offsets
    read = np.where(floor > start, np.minimum(floor, consumed), floor)
    waits = (kind.watch_ms >= 0) & ((facts.since < 0) | (facts.since + kind.watch_ms > facts.now)) & (read > start)
    future = (kind.minimum_ms > facts.now) & (kind.allow_empty == 0)
    candidates = (
        (kind.consumed_ms, np.where((kind.refused == 1) | waits, NONE, read), np.zeros_like(start)),
        (kind.minimum_ms, np.where(future, NONE, minimum), kind.guarded),
        (kind.forced_ms, forced, kind.forced_guarded),
    )
    old = (kind.allow_ancient == 0) & ((front < 0) | (front > start))
    best, rule, limited_by = (np.full_like(start, NONE) for _ in range(3))
    why = np.zeros_like(start)
    for n, (after, bound, guarded) in enumerate(candidates):
        ends = np.minimum(bound, np.minimum(facts.end, facts.stable))
        unread = np.where((guarded == 1) & (floor >= 0), np.minimum(bound, floor), bound)
        left = np.minimum(ends, unread)
        beyond = (after >= 0) & (left > start)  # and so is the bound; else there is nothing to trim
        lost = beyond & (guarded == 1) & (floor < 0)
        unknown = (after >= 0) & (bound < 0)
        why += (unknown + 2 * lost + 4 * (beyond & old)) << 3 * n
        wins = beyond & ~old & ~lost & (left > best)
        best, rule = np.where(wins, left, best), np.where(wins, n, rule)
        limited_by = np.where(wins, np.where(left == bound, NONE, np.where(ends <= unread, 0, 1)), limited_by)
    fixed, empty = kind.fixed, start == facts.end
    action = np.where(best >= 0, TRIM, np.where(why > 0, HOLD, KEEP))
    action = np.where(empty, KEEP, np.where(fixed == _UNKNOWN, HOLD, action))
    action = np.where(fixed == SKIP, SKIP, np.where(fixed == _FROZEN, HOLD, action))
    bits = (waits, consumed < 0, front < 0, minimum < 0)
    why += sum(one.astype(np.int64) << 9 + n for n, one in enumerate(bits))
    trims = action == TRIM
    best, rule, limited_by = (np.where(trims, one, NONE) for one in (best, rule, limited_by))
    return Decided(action, best, rule, limited_by, why)


_CODE: Final = "evidence"
_NO_LOOKUP: Final = Unknown.because("evidence", "the run looked up other times than this policy asks for")
_GROUPS: Final = Unknown.because(
    "evidence", "the run required other groups (groups.require), and its floor counts those"
)
_EVENTS: Final = Unknown.because("evidence", "the run did not read event times, or read them otherwise")
_WRITTEN: Final = Unknown.because(
    "evidence", "the run did not ask when records were written (retention.min.wallclock.ms)"
)
_SIZES: Final = Unknown.because("evidence", "the run did not calculate with this size limit")
_USAGE: Final = Unknown.because("evidence", "how full disks were is not in the evidence (watermarks)")
_CEILING: Final = Unknown.because(
    "evidence", "a disk ceiling is decided over all disks, and these are not in the evidence"
)


def redecide(row: Row, settings: Settings, rules: DiskRules) -> Decision:
    """Return the decision for a recorded row under other settings, at the time of its recheck."""
    facts, now_ms = _as_known(row, settings, rules), row.now_ms
    wanted = TopicRules(facts.topic, settings, now_ms).wanted(facts)
    end = known(facts.high_watermark) or 0
    low, high, lacking = facts, facts, facts
    for name, times in (("lookups", wanted.times), ("data_lookups", wanted.data)):
        answers: Mapping[int, Maybe[LookUp]] = getattr(facts, name)
        if missing := {at: _between(answers, at, end) for at in times if at not in answers}:
            low, high, lacking = (
                one._replace(**{name: {**answers, **more}})  # type: ignore[arg-type]  # (mypy: of any field)
                for one, more in (
                    (low, {at: ends[0] for at, ends in missing.items()}),
                    (high, {at: ends[1] for at, ends in missing.items()}),
                    (lacking, dict.fromkeys(missing, _NO_LOOKUP)),
                )
            )
    found = decide(low, settings, now_ms)
    if high is not low:
        other = decide(high, settings, now_ms)
        if found.action == "hold" or (found.action, found.trim_to) != (other.action, other.trim_to):
            found = decide(lacking, settings, now_ms)
    return found if rules.percent is None else held_by_disks(found, _CEILING)


def _between(answers: Mapping[int, Maybe[LookUp]], at_ms: int, end: int) -> tuple[LookUp, LookUp]:
    """Return what allows least and most of all that a look-up can have given: of a later time it gives no less."""
    found = [(time, one) for time, one in answers.items() if not isinstance(one, Unknown)]
    low = max((one.offset for time, one in found if time < at_ms), default=0)
    high = min(
        (one.offset for time, one in found if time > at_ms and one.note is None and time != ANCIENT_MS), default=end
    )
    ends = LookUp(low), LookUp(max(low, high))
    return ends[::-1] if at_ms == ANCIENT_MS else ends  # there the larger offset allows less (G9)


def _as_known(row: Row, settings: Settings, rules: DiskRules) -> PartitionFacts:
    """Return a row's facts without those that its policy's own settings have shaped, where the new ones differ."""
    facts, was = row.facts, row.settings
    gone: dict[str, Any] = {"usage": None}
    if {*settings.require_groups} != {*was.require_groups}:
        gone["floor"] = _GROUPS
    if settings.event_time_ms is not None:
        if was.event_time_ms is None or _events(settings) != _events(was):
            gone |= {"newest": _EVENTS, "event_prefix": _EVENTS}
        elif settings.event_time_ms != was.event_time_ms:
            gone["event_prefix"] = _EVENTS
    if settings.min_wallclock_ms != was.min_wallclock_ms:
        gone |= {"samples": _WRITTEN, "stamped_below": _WRITTEN}
    if (settings.max_bytes, settings.max_topic_bytes) != (was.max_bytes, was.max_topic_bytes):
        gone["tails"] = dict.fromkeys(("retention.bytes", "retention.topic.bytes"), _SIZES)
    if rules.watermarks:
        use = facts.usage
        percent = use.percent if isinstance(use, Usage) else -1.0
        reached = max((mark for mark in rules.watermarks if mark.percent <= percent), default=None)
        gone["usage"] = use if isinstance(use, Usage) and use.mark == reached else _USAGE
    return facts._replace(**gone)


def _events(settings: Settings) -> tuple[object, ...]:
    return settings.event_source, settings.ignore_future, settings.skip_unreadable, settings.max_ahead_ms


class Redecided(NamedTuple):
    """Decisions by row: where the new log start would be (−1: nothing), what is held, and for lack of evidence."""

    target: Numbers
    held: Mask
    lacking: Mask


class Deciding:
    """Decides tables of recorded rows under one policy.

    Args:
        policy: the other policy.
        on_held: called with the reasons why rows are held, and the number of those rows.
    """

    def __init__(self, policy: Policy, on_held: Callable[[tuple[Reason, ...], int], None]) -> None:
        self._policy = policy
        self._on_held = on_held
        self._settings_for = cache(policy.settings_for)
        self._kind = cache(self._kind_of)

    def decide(self, table: Any) -> Redecided:
        """Return what the policy decides for each row of a recheck's table."""
        facts = Facts.of(table, self._kind)
        good = facts.plain
        exact = facts.looked_up()
        found = low = high = decide_columns(facts, exact)
        if any((one < 0).any() for one in exact):
            low, high = (decide_columns(facts, one) for one in facts.between(exact))
        settled = (low.action == high.action) & (low.target == high.target) & (low.action != HOLD)
        action = np.where(settled, low.action, found.action)
        target = np.where(good & (action == TRIM), np.where(settled, low.target, found.target), NONE)
        held: Mask = good & (action == HOLD)
        lacking = np.zeros_like(held)
        _, first, which, counts = np.unique(
            (facts.group << WHY_BITS | found.why)[held],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        alike = rows_of(table.take(np.flatnonzero(held)[first]))  # all rows of a key have the same reasons
        lack = [self._lacks(self._again(row), count) for row, count in zip(alike, counts.tolist(), strict=True)]
        lacking[held] = np.array(lack, np.bool_)[which]
        if self._policy.disks.percent is not None:
            idle = good & (action == KEEP) & (facts.start != facts.end)
            self._on_held(_CEILING.reasons, int(idle.sum()))
            held, lacking = held | idle, lacking | idle
        irregular = np.flatnonzero(~good)
        for n, row in zip(irregular.tolist(), rows_of(table.take(irregular)), strict=True):
            again = self._again(row)
            if again is not None and again.action == "hold":
                held[n], lacking[n] = True, self._lacks(again, 1)
            elif again is not None and again.trim_to is not None:
                target[n] = again.trim_to
        return Redecided(target, held, lacking)

    def _again(self, row: Row) -> Decision | None:
        settings = self._settings_for(row.facts.topic.name)
        return None if settings is None else redecide(row, settings, self._policy.disks)

    def _lacks(self, held: Decision | None, count: int) -> bool:
        """Report why rows are held, and return whether that is for lack of evidence."""
        reasons = () if held is None else held.reasons
        self._on_held(reasons, count)
        return any(reason.code == _CODE for reason in reasons)

    def _kind_of(self, about: str, was: str) -> tuple[int, ...]:
        """Return the :class:`Kind` of a topic's facts under the policy, given the settings of the run."""
        topic, old = from_json("topic", about), from_json("settings", was)
        if (settings := self._settings_for(topic.name)) is None:
            return fixed_kind(SKIP)
        if self._policy.disks.watermarks:
            return OTHER
        return kind_of(topic, settings, blind={*settings.require_groups} != {*old.require_groups})
