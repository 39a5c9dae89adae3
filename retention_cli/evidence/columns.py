"""Decide recorded rows by columns, as :func:`~retention_cli.decide.decision.decide` does one by one. Pure.

That is R1, R3 and R4 with G1, G2, G5, G7, G9 and F10, where every fact is known and has no notes, or the floor alone is
unknown. A row of which more matters is not ``plain``, and is left to ``decide``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from retention_cli.core.extras import arrow
from retention_cli.core.json_values import loads
from retention_cli.core.model import ANCIENT_MS, Code, PartitionFacts, Reason, TopicFacts, Unknown
from retention_cli.decide.guards import frozen, untouchable
from retention_cli.decide.triggers import TRIGGERS
from retention_cli.decide.triggers.consumed import forced_retention_conflict, live_retention
from retention_cli.evidence.format import EvidenceError, coded
from retention_cli.evidence.value import NONE, Numbers
from retention_cli.policy.settings import Settings

Mask = npt.NDArray[np.bool_]
ACTIONS: Final = ("trim", "keep", "hold", "skip")
TRIM, KEEP, HOLD, SKIP = range(4)
RULES: Final = ("consumed", "min-timestamp", "forced-age")
LIMITS: Final = (Code.G1, Code.G2)
WHY_BITS: Final = 13
_FROZEN, _UNKNOWN, _ASKS = range(4, 7)
_BIG: Final = 2**62  # two of these can be added


class Kind(NamedTuple):
    """What topics' facts and settings come to, by row: 1 for yes, and times in ms, −1 for a rule that is off.

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
    found: Numbers = table.column(name).fill_null(NONE).to_numpy().astype(np.int64)
    return found


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


def places(wanted: Any, have: Any, number: str) -> Numbers:
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

    ``sound``: S, H and the floor are those of the columns, or the floor is ``lost``: unknown.
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
        """Return those of a recheck's table, given what a topic's facts and settings come to."""
        (topics, about), (settings, chosen), (more, odd) = (
            coded(table, name) for name in ("topic_facts", "settings", "more")
        )
        groups, group = np.unique((about * len(settings) + chosen) * (len(more) + 1) + odd + 1, return_inverse=True)
        pairs = (groups // (len(more) + 1)).tolist()
        if min(about.min(initial=0), chosen.min(initial=0)) < 0:
            raise EvidenceError("a row has no topic_facts, or no settings")
        kinds = [kind(topics[one // len(settings)], settings[one % len(settings)]) for one in pairs]
        found = Kind(*np.array(kinds, np.int64).reshape(-1, len(Kind._fields)).T[:, group])
        sound, lost, alone = np.array([*map(_odd, more), (True, False, True)]).T[:, odd]
        start, end, stable, floor, now, since = (
            numbers(table, name)
            for name in ("log_start", "high_watermark", "last_stable_offset", "floor", "now_ms", "watched_since_ms")
        )
        plain: Mask = (found.plain == 1) & alone & (now >= 0) & (now < _BIG) & (since < _BIG)
        plain &= (np.minimum(np.minimum(start, end), stable) >= 0) & ((floor >= 0) | lost)
        plain |= (found.plain == 1) & ((found.fixed == SKIP) | (found.fixed == _FROZEN))
        floor = np.where(lost | (found.blind == 1), NONE, floor)
        return cls(found, group, plain, sound, lost, start, end, stable, floor, now, since, _looked(table))

    def asked(self) -> list[Numbers]:
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
        return [self._exact(at, data=n == 1) for n, at in enumerate(self.asked())]

    def _exact(self, at: Numbers, *, data: bool) -> Numbers:
        one, found = self.looked, np.where(at <= 0, 0, NONE)
        this = (one.data == data) & (one.at == at[one.row]) & (one.at > 0)
        found[one.row[this]] = one.offset[this]
        return found

    def between(self, exact: Sequence[Numbers]) -> tuple[list[Numbers], list[Numbers]]:
        """Return the least and the most that they allow: where one was not made, by those of other times."""
        least, most = [], []
        for n, (at, known) in enumerate(zip(self.asked(), exact, strict=True)):
            one, low, high = self.looked, np.zeros_like(self.end), self.end.copy()
            same = one.data == (n == 1)
            before, after = same & (one.at < at[one.row]), same & (one.at > at[one.row]) & (one.at != ANCIENT_MS)
            np.maximum.at(low, one.row[before], one.offset[before])
            np.minimum.at(high, one.row[after], one.offset[after])
            ends = [np.where(known < 0, one, known) for one in (low, np.maximum(low, high))]
            least.append(ends[n == _FRONT])
            most.append(ends[n != _FRONT])
        return least, most


_FRONT: Final = 3  # of 2000-01-01 the larger offset allows less (G9)


def _odd(more: str) -> tuple[bool, bool, bool]:
    """Return, of what is odd about a row: whether it is sound, whether the floor is lost, and whether that is all."""
    found = loads(more)
    if not isinstance(found, dict):
        raise EvidenceError("what is odd about a row is no JSON object")
    floor = found.get("floor")
    lost = isinstance(floor, dict) and [*floor] == ["reasons"]
    of_columns = ("log_start", "high_watermark", *(() if lost else ("floor",)))
    return found.keys().isdisjoint(of_columns), lost, lost and len(found) == 1


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


def decide(facts: Facts, offsets: Sequence[Numbers]) -> Decided:
    """Return the decision for each plain row, given what look-ups gave, as in :meth:`Facts.looked_up`."""
    kind, start, floor = facts.kind, facts.start, facts.floor
    consumed, minimum, forced, front = offsets
    read = np.where(floor > start, np.minimum(floor, consumed), floor)
    waits = (kind.watch_ms >= 0) & ((facts.since < 0) | (facts.since + kind.watch_ms > facts.now)) & (read > start)
    future = (kind.minimum_ms > facts.now) & (kind.allow_empty == 0)
    asked = (
        (kind.consumed_ms, np.where((kind.refused == 1) | waits, NONE, read), np.zeros_like(start)),
        (kind.minimum_ms, np.where(future, NONE, minimum), kind.guarded),
        (kind.forced_ms, forced, kind.forced_guarded),
    )
    old = (kind.allow_ancient == 0) & ((front < 0) | (front > start))
    best, rule, limited_by = (np.full_like(start, NONE) for _ in range(3))
    why = np.zeros_like(start)
    for n, (after, bound, guarded) in enumerate(asked):
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
