"""Check rows by columns: derived from :mod:`.checks`, and only where both must come to the same. Pure.

All rows of which that is not sure, and those that look wrong, are left to :mod:`.checks`.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from retention_cli.core.model import TopicFacts
from retention_cli.evidence.columns import (
    ACTIONS,
    LIMITS,
    RULES,
    TRIM,
    Decided,
    Facts,
    Mask,
    decide,
    kind_of,
    numbers,
)
from retention_cli.evidence.files import Part
from retention_cli.evidence.format import EvidenceError, coded, from_json
from retention_cli.evidence.value import KINDS, NONE, Numbers, ReadTimes
from retention_cli.policy.settings import Settings

_BIG: Final = 2**31


class Plain(NamedTuple):
    """Which rows' decisions, floors and times are right, and how far a request may go (−1: none).

    ``allowed`` is of rows whose decision is right by columns.
    """

    decided: Mask
    floors: Mask
    times: Mask
    allowed: Numbers


def check(part: Part, *, inventory: bool) -> Plain:
    """Check a recheck's rows; with an inventory sizes are not in the facts."""
    table = part.table
    if any(table.column(name).null_count for name in ("recheck", "topic", "partition")):
        raise EvidenceError("a row has no topic, partition or recheck")
    about: dict[str, TopicFacts] = {}

    @cache
    def chosen(text: str) -> Settings:
        found: Settings = from_json("settings", text)
        return found

    @cache
    def kind(topic: str, settings: str) -> tuple[int, ...]:
        about[topic] = from_json("topic", topic)
        return kind_of(about[topic], chosen(settings))

    facts = Facts.of(table, kind)
    found = decide(facts, facts.looked_up())
    column = {name: numbers(table, name) for name in _NUMBERS}
    good = facts.plain & _said(table, column, facts, found, sized=not inventory)
    reads = [column[f"{name}_ms"] for name in ReadTimes._fields]
    times: Mask = (reads[0] - 1 <= facts.now) & (facts.now <= reads[-1] + 1)
    for before, later in pairwise(reads):
        times &= before <= later
    texts, which = coded(table, "topic_facts")
    ids = [about[one].topic_id if one in about else None for one in texts]
    good &= _texts(table, "topic") == np.array([about[one].name if one in about else None for one in texts])[which]
    planned, epoch = column["plan_trim_to"], column["plan_epoch"]
    least = np.minimum(planned, found.target)
    same = (epoch == column["leader_epoch"]) & (epoch >= 0) & (column["plan_min_commit"] <= facts.floor)
    same &= _texts(table, "plan_topic_id") == np.array([one if isinstance(one, str) else None for one in ids])[which]
    unread = least - np.minimum(np.maximum(facts.start, facts.floor), least)
    sent = same & (found.action == TRIM) & (least > facts.start) & (unread <= column["plan_unconsumed"])
    floors = facts.sound & (facts.lost | _floor_holds(part, column, facts))
    return Plain(good, floors, times, np.where(sent, least, NONE))


_NUMBERS: Final = (
    *("size_bytes", "trim_to", "trim_bytes", "plan_trim_to", "plan_min_commit", "plan_unconsumed", "plan_epoch"),
    *("leader_epoch", *(f"{name}_ms" for name in ReadTimes._fields)),
)


def _texts(table: Any, name: str) -> Any:
    texts, which = coded(table, name)
    return np.array([*texts, None], object)[which]


def _said(table: Any, column: dict[str, Numbers], facts: Facts, found: Decided, *, sized: bool) -> Mask:
    """Return where the decision in the table is the one that was found."""
    start, end, target, sizes = facts.start, facts.end, found.target, column["size_bytes"]
    good: Mask = (column["trim_to"] == target) & (table.column("trim_to").is_null().to_numpy() == (target < 0))
    for name, names, which in (
        ("action", ACTIONS, found.action),
        ("rule", RULES, found.rule),
        ("limited_by", LIMITS, found.limited_by),
    ):
        texts, said = coded(table, name)
        place = {one: n for n, one in enumerate(names)}
        good &= np.array([*(place.get(one, -2) for one in texts), NONE])[said] == which
    if not sized:
        return good
    trims, whole = found.action == TRIM, np.maximum(end - start, 1)
    some, part = np.where(trims, target - start, 0), np.minimum(whole, _BIG - 1)
    share = sizes // whole * some + sizes % part * np.minimum(some, part) // part  # without an overflow
    good &= ~trims | ((sizes >= 0) & (whole < _BIG))
    good &= (column["trim_bytes"] == np.where(trims, share, 0)) & ~table.column("trim_bytes_exact").fill_null(
        True
    ).to_numpy()
    return good


def _floor_holds(part: Part, column: dict[str, Numbers], facts: Facts) -> Mask:
    """Return where every commit is plain, in the current epoch, within the log, and not below the floor."""
    commits = part.commits
    row = np.repeat(np.arange(len(facts.floor)), np.diff(commits.start))
    epoch = commits.epoch
    odd = (commits.kind != KINDS.index("commit")) | ((epoch != NONE) & (epoch != column["leader_epoch"][row]))
    odd |= (commits.offset > facts.end[row]) | (commits.offset < facts.floor[row])
    good: Mask = np.diff(commits.start).astype(np.bool_)
    good[row[odd]] = False
    names, whose = coded(part.table, "floor_by")
    place = {name: n for n, name in enumerate(names)}
    by = np.array([*(place.get(name, -2) for name in commits.names), -2])
    lowest = np.zeros(len(good), np.bool_)
    lowest[row[by[commits.by] == whose[row]]] = True
    return good & lowest
