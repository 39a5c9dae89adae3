"""Groups that may start back where they have no commit, and groups that may be missing from a listing (F2, F4, F8, F9)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from retention_cli.brokers.groups import ListedGroup
from retention_cli.core.model import Floor, TopicPartition
from retention_cli.memory.group import RecalledGroup
from retention_cli.memory.positions import Rows
from retention_cli.observe.cluster import by_wrong_clock
from retention_cli.observe.floors.fold import FloorFold, Latest, TopicScope
from retention_cli.observe.floors.kafka_groups import starts_of
from retention_cli.policy.settings import GroupRules

HOUR = 3_600_000


def folded(*require: str, latest: Latest | None = None) -> FloorFold:
    """Fold a group that has read up to 9 on the three partitions of a topic; of required groups none."""
    fold = FloorFold({"orders": TopicScope([5, 5, 5], require)}, latest or Latest())
    if not require:
        fold.add("done", {"orders": [(n, 9, None) for n in range(3)]})
    return fold


def at(fold: FloorFold, partition: int = 0) -> object:
    """Return a partition's floor, or the codes of the reasons why it is unknown."""
    found = fold.floor(TopicPartition("orders", partition), 0, 10)
    return found if isinstance(found, Floor) else [reason.code for reason in found.reasons]


def test_start_that_nobody_can_tell_is_f2_also_beside_a_commit_that_is_gone_and_groups_latest() -> None:
    """F2, G8: with a wrong clock, or members that are not asked, neither a start nor ``groups.latest`` waives it."""
    fold = folded(latest=Latest(frozenset({"daily"})))
    fold.starts = {"daily": None}
    fold.add("daily", {"orders": [(1, 4, None)]})
    assert [at(fold), at(fold, 1), at(fold, 2)] == [["F2"], Floor(4, "group:daily"), ["F2"]]
    fold = folded(latest=Latest(frozenset({"daily"})))
    fold.starts = {"daily": None}
    fold.add_gone("daily", {"orders": [(0, 6, 5)]}, "2026-11-01")
    assert [at(fold), at(fold, 2)] == [["F2"], ["F2"]]
    assert fold.starts_to_ask() == {}


@pytest.mark.parametrize(
    ("group", "back_ms"),
    [
        (ListedGroup("daily", "classic", "consumer", "Stable"), HOUR),
        (ListedGroup("daily", "classic", "connect", "Stable"), None),
        (ListedGroup("daily", "classic", "connect", "Empty"), HOUR),
        (ListedGroup("late", "classic", "consumer", "Stable"), None),
        (ListedGroup("late", "classic", "consumer", "Empty"), HOUR),
    ],
)
def test_start_says_nothing_of_a_group_whose_members_are_not_asked(group: ListedGroup, back_ms: int | None) -> None:
    """F2: a live member may have started long ago. ``groups.by.commits`` and other types are not described."""
    rules = GroupRules(by_commits=("late",), start=((group.name, HOUR),))
    assert starts_of([group], rules) == {group.name: back_ms}


def test_required_group_that_is_not_listed_holds_where_groups_may_be_missing() -> None:
    """F4, F8, F9: it may be there, and stand elsewhere by now. A commit that is gone of a listed group is read."""
    gone: Rows = {"orders": [(0, 6, 5)]}
    fold = folded("billing")
    fold.add_gone("billing", gone, "2026-11-01")
    assert isinstance(at(fold), Floor)
    fold = folded("billing")
    fold.may_lack = True
    fold.add_gone("billing", gone, "2026-11-01")
    assert at(fold) == ["F4"]
    fold.add("billing", {}, recalled=RecalledGroup(gone))
    assert isinstance(at(fold), Floor)


def test_wrong_clock_leaves_groups_start_in_force_but_dates_nothing() -> None:
    """F2, G8: without the key, ``groups.latest`` would waive a missing commit, and R5 and R6 trim by any clock."""
    told = GroupRules(latest=("daily",), start=(("daily", HOUR),))
    assert by_wrong_clock(told, 5) == replace(told, remember_ms=5, start=(("daily", None),))
