"""What ``kretain groups`` says below its table."""

from __future__ import annotations

import pytest

from kretain.options.common import Output
from kretain.render.consumers import print_groups
from retention_cli.reports.groups import GroupList, GroupSummary

DAY = 86_400_000
NOW = 1_763_900_000_000


def group(name: str, days: int | None, lag: int | None = 5, counts: str = "counts") -> GroupSummary:
    since_ms = None if days is None else NOW - days * DAY
    return GroupSummary(name, "classic", "consumer", "Empty", counts, lag=lag, unmoved_since_ms=since_ms)


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([group("fresh", None), group("moves", 0)], None),
        ([group("reads-all", 9, lag=0), group("unread", 9, lag=None), group("ignored", 9, counts="ignored")], None),
        ([group("late", 1), group("zombie", 40)], "zombie since 2025-10-14T12:13:20Z, late since 2025-11-22T12:13:20Z"),
        (
            [group(f"g{number}", 10 - number) for number in range(5)],
            "g0 since 2025-11-13T12:13:20Z, g1 since 2025-11-14T12:13:20Z, g2 since 2025-11-15T12:13:20Z, and 2 more",
        ),
    ],
)
def test_who_stands_still_with_records_to_read(
    groups: list[GroupSummary], said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    print_groups(GroupList("c1", "b:9092", groups, None), Output.table, NOW, first_look=False)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Not moved")]
    assert lines == ([] if said is None else [f"Not moved for a day or longer, with records to read: {said}."])


@pytest.mark.parametrize("first_look", [True, False])
def test_a_first_look_is_said_in_the_table_alone(first_look: bool, capsys: pytest.CaptureFixture[str]) -> None:
    for output in (Output.table, Output.json):
        print_groups(GroupList("c1", "b:9092", [], None), output, NOW, first_look=first_look)
        said = "Nothing is remembered of this cluster yet" in capsys.readouterr().out
        assert said == (first_look and output is Output.table)
