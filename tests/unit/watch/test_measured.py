"""What metrics show: bounded, each series once, and nothing made up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retention_cli.watch.board import Board
from retention_cli.watch.measured import MOST_GROUPS, MOST_PAIRS, Groups, Measured, groups_of, label
from retention_cli.watch.metrics import NAMES, as_text, registry_of
from tests.support.ceilings import row
from tests.support.watching import samples


def test_every_metric_is_exported_and_series_of_vanished_items_end() -> None:
    board = Board(300, lambda: True, lambda: True)
    registry = registry_of(board)
    few = {key[0] for key in _samples(registry)}
    assert few < set(NAMES)
    board.succeed(1.0)
    groups = Groups({"group:a": 3, 'group:"\\\n': 1}, {("group:a", "t"): 60.0})
    board.cluster, board.pass_s, board.planned_s = "c", 0.1, 2.0
    board.measured = Measured({"trim": 1}, {"F2": 2}, groups, {("1", "/data"): 0.5}, 0.8)
    assert {key[0] for key in _samples(registry)} == set(NAMES)
    board.measured = Measured({"trim": 1}, {}, Groups(), {}, None)
    assert ("kretain_group_lag_records", "group:a") not in _samples(registry)


def _samples(registry: object) -> dict[tuple[str, ...], float]:
    from prometheus_client.openmetrics.exposition import generate_latest

    assert as_text(registry)
    return {key: value for key, value in samples(generate_latest(registry).decode()).items() if key[0] in NAMES}  # type: ignore[no-untyped-call]


@given(st.text(max_size=400), st.text(max_size=400))
def test_label_is_printable_bounded_and_unique(one: str, other: str) -> None:
    assert len(label(one)) <= 220
    assert label(one).isprintable()
    assert (label(one) == label(other)) == (one == other)


def test_group_series_are_bounded_and_include_the_worst() -> None:
    rows = [
        row(number, 0, 0, 0, 1)._replace(
            min_commit_by=f"group:{number}", high_watermark=10 + number, topic=f"t{number}"
        )
        for number in range(2 * MOST_PAIRS)
    ]
    found = groups_of(rows, lambda one: 3600 - one.partition / 1000)
    assert len(found.lag) <= 2 * MOST_GROUPS
    assert len(found.loss) <= MOST_PAIRS
    worst = f"group:{2 * MOST_PAIRS - 1}"
    assert found.lag[worst] == 2 * MOST_PAIRS - 1 + 9
    assert min(found.loss.values()) == found.loss[worst, f"t{2 * MOST_PAIRS - 1}"]
    assert found.left_out == len(rows) - len(found.lag)


def test_group_that_read_everything_has_no_time_to_loss() -> None:
    rows = [row(n, 5, 0, 0, 7)._replace(high_watermark=10 if n else 7) for n in range(3)]
    found = groups_of(rows, lambda one: 100.0 - one.partition)
    assert dict(found.loss) == {("group:g", "t"): 98.0}
    assert dict(found.lag) == {"group:g": 6}
    assert groups_of(rows, lambda _one: None).loss == {}
