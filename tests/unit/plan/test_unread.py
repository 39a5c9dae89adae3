"""Whose unread records a plan would trim (G2): of consumers that are gone, too (F6)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from retention_cli.observe.floors.fold import Commit
from retention_cli.plan.unread import GoneCommits, lost_of, unread_by_group

LOSING = {"orders": {0: (4, 10), 2: (0, 5)}}


@pytest.mark.parametrize(
    ("rows", "lost"),
    [
        ([(0, 7, 1)], 3),
        ([(0, 1, None)], 6),
        ([(0, 10, 1)], 0),
        ([(0, 12, 1), (2, 3, 1)], 2),
        ([(1, 0, 1)], 0),
        ([], 0),
    ],
)
def test_consumer_loses_records_between_its_position_and_the_target(rows: list[Commit], lost: int) -> None:
    assert lost_of(LOSING, {"orders": rows, "invoices": [(0, 0, 1)]}) == lost


def test_deleted_commits_count_as_lost_positions() -> None:
    gone: GoneCommits = [
        ("part", {"orders": [(0, 6, 1)]}),
        ("part", {"orders": [(2, 4, None)]}),
        ("old", {"invoices": [(0, 0, 1)]}),
        ("older", {"orders": [(0, 0, 1)]}),
    ]
    reader: Any = SimpleNamespace(read_commits=lambda _groups, _on_commits: None)
    assert unread_by_group(reader, {}, gone, LOSING) == {"group:part": 4 + 1, "group:older": 6}
