"""What people read: whole numbers at any width, words that are true, lines that are broken where a person would."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from kretain import errors as exits
from kretain.flows.plans import NOTES_FILE, once_a_day
from kretain.render import output
from kretain.render.consumers import print_groups
from kretain.render.explain import Marker, picture
from kretain.render.output import Column, Table
from kretain.render.plan import given_back, print_plan, summary
from retention_cli.core.model import Decision, Reason
from retention_cli.disks.disk import Space
from retention_cli.engines.fleet.plan import FleetPlan
from retention_cli.plan.value import Plan, Totals, held_back_by
from retention_cli.reports.groups import GroupList, GroupSummary
from tests.support.plans import HOLD, KEEP, SKIP, plan, row
from tests.support.says import says


def terminal_of(monkeypatch: pytest.MonkeyPatch, width: int) -> io.StringIO:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setattr(output, "console", lambda: console)
    return out


def shown(monkeypatch: pytest.MonkeyPatch, width: int, *decisions: Decision) -> list[str]:
    out = terminal_of(monkeypatch, width)
    print_plan(plan(*decisions), "table", every_row=False)
    return out.getvalue().splitlines()


LONG = "payments.eu-central-1.card-transactions.settled.v2"


@pytest.mark.parametrize("topic", ["orders", LONG])
@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_plan_table_fits_the_terminal_without_truncating_a_number(
    monkeypatch: pytest.MonkeyPatch, width: int, topic: str
) -> None:
    big = row(
        topic=topic,
        log_start=123_456_789,
        high_watermark=234_567_891,
        trim_to=234_567_890,
        records=111_111_101,
        size_bytes=2**40,
        min_commit=234_567_890,
        min_commit_by=f"group:{LONG}",
    )
    lines = shown(monkeypatch, width, big)
    text = "\n".join(lines)
    assert re.search(r" 123,456,789 → +(111,111,101 .*\n.*)?234,567,890 ", text)
    assert re.search(r" 111,111,101 +1\.00 TiB ", text)
    assert ("…" in text, max(map(len, lines)) <= width) == (False, True), text


def test_too_narrow_terminal_gets_entire_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(shown(monkeypatch, 40, row(log_start=1_234_567, high_watermark=9_999_999, trim_to=2_345_678)))
    assert re.search(r" 1,234,567 →.*\n +2,345,678 ", text)


@pytest.mark.parametrize(
    ("decision", "held_by"),
    [
        # at the floor: the consumer holds the rest back
        (row(trim_to=60, min_commit=60, high_watermark=100), "billing"),
        (row(trim_to=60, min_commit=60, high_watermark=100, limited_by="G2"), "billing"),
        # short of the floor (too young), and everything read: nobody does
        (row(trim_to=50, min_commit=60, high_watermark=100), ""),
        (row(trim_to=50, min_commit=100, high_watermark=100), ""),
        # forced beyond the floor: nobody holds back what is gone
        (row(trim_to=90, min_commit=60, high_watermark=100, rule="forced-age", unconsumed=30), ""),
        (row(trim_to=50, min_commit=60, high_watermark=100, limited_by="G1"), "G1"),
        (KEEP._replace(log_start=60, min_commit=60, high_watermark=100), "billing"),
        (KEEP._replace(log_start=60, min_commit=40, high_watermark=100, reasons=(Reason("F5", "lost"),)), "billing"),
        (KEEP._replace(log_start=60, min_commit=40, high_watermark=100), ""),
        (HOLD, "G7"),
    ],
)
def test_held_back_by_column_names_the_consumer_at_the_floor_or_the_guard(decision: Decision, held_by: str) -> None:
    if decision.min_commit_by is not None:
        decision = decision._replace(min_commit_by="group:billing")
    assert ", ".join(held_back_by(decision)) == held_by


@pytest.mark.parametrize(
    ("decisions", "said"),
    [
        ((KEEP,), "No changes. 1 partition up to date."),
        ((KEEP, KEEP, HOLD), "No changes. 2 partitions up to date, 1 on hold."),
        ((HOLD, SKIP), "No changes. 1 partition on hold, 1 skipped."),
        ((), "No changes. No partitions."),
        ((row(),), "Trim 50 records (about 500 B) from 1 partition."),
        (
            (row(), row(partition=1, size_bytes=None), KEEP, HOLD, SKIP),
            "Trim 100 records from 2 partitions; 1 up to date, 1 on hold, 1 skipped.",
        ),
        ((row(size_exact=True),), "Trim 50 records (500 B) from 1 partition."),
    ],
)
def test_summary_of_a_plan_counts_each_action_in_one_sentence(decisions: tuple[Decision, ...], said: str) -> None:
    assert summary(Totals.of(decisions)) == said


REFUSED = plan(row(), refusals=(Reason("G6", "too much"),))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (REFUSED, "trim would refuse this plan (exit 6): too much (G6).\n\npartition "),
        (
            FleetPlan(0, "fleet.yaml", None, {"eu": REFUSED}),
            "trim would refuse the plan of eu (exit 6): too much (G6).\n\ncluster ",
        ),
    ],
    ids=["a cluster", "a fleet"],
)
def test_plan_that_trim_would_refuse_says_so_in_its_first_line(
    made: Plan | FleetPlan, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_plan(made, "table", every_row=False)
    assert capsys.readouterr().out.startswith(said)


@given(
    start=st.integers(0, 2**40),
    length=st.integers(1, 2**40),
    shares=st.lists(st.floats(-0.5, 1), max_size=6),
    width=st.integers(24, 200),
    text=st.sampled_from(["log start", "x" * 50, " ".join(["many words"] * 20)]),
)
def test_log_picture_stays_within_its_width(
    start: int, length: int, shares: list[float], width: int, text: str
) -> None:
    marks = [Marker("R1", max(0, start + int(share * length)), text) for share in shares]
    lines = picture(start, start + length, None, marks, width)
    assert max(map(len, lines)) <= width
    assert "".join(lines).count("▲") == len(marks)


def test_message_is_one_line_in_a_pipe_and_wrapped_at_words_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "kretain: " + "a sentence that goes on " * 10
    exits.tell(text)
    assert capsys.readouterr().err == text + "\n"
    monkeypatch.setenv("COLUMNS", "60")
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    exits.tell(text)
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert " ".join(line.strip() for line in lines) == text.strip()


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (None, "complete segments, file.delete.delay.ms after their next retention check"),
        (Space(3, 3, 3 << 30, 0, False, 300_000, 60_000), "free 3.00 GiB of disk space, counting all replicas, "),
        (Space(3, 3, 3 << 30, 0, True, 300_000, 60_000), "about 3.00 GiB"),
        (
            Space(3, 3, 3 << 30, 0, True, 300_000, 60_000),
            "within 5 m (their next retention check) plus 1 m (file delete delay)",
        ),
        (Space(3, 3, 1, 0, False, None, None), "within log.retention.check.interval.ms"),
        (Space(3, 2, 1, 1 << 20, True, None, None), "and up to 1.00 MiB that are already dead"),
        (Space(3, 2, 1, 0, True, None, None), "Unknown for 1 disk."),
        (Space(3, 3, 0, 1 << 20, False, None, None), "free 1.00 MiB that are already dead"),
        (Space(3, 3, 0, 0, False, None, None), "It deletes no complete segment"),
    ],
)
def test_plan_names_the_bytes_that_brokers_free_and_when(space: Space | None, said: str) -> None:
    assert said in given_back(space)


PLAN = (
    Column("partition"),
    Column("action", unbroken=True),
    Column("log start → trim to", "right"),
    Column("records", "right"),
    Column("bytes", "right"),
    Column("rule"),
    Column("held back by"),
)
ROWS = [
    ("flights-1", "trim", "0 → 146,326", "146,326", "5.42 MiB", "consumed", "delays"),
    ("weather-0", "trim", "0 → 4,351", "4,351", "134 KiB", "consumed", "archive"),
]


def drawn(
    monkeypatch: pytest.MonkeyPatch, width: int, rows: Sequence[tuple[str, ...]], columns: Sequence[Column] = PLAN
) -> list[str]:
    out = terminal_of(monkeypatch, width)
    output.print_table(Table(columns, rows))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_long_names_wrap_and_lose_nothing_and_numbers_stay_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "orders.by-customer.eu-central-1.and-more-of-a-name-than-fits-a-terminal-0"
    lines = drawn(monkeypatch, 80, [(name, *ROWS[0][1:])])
    assert "".join(line.split(" ")[0] for line in lines if "─" not in line) == f"partition{name}"
    assert any("0 → 146,326" in line and "5.42 MiB" in line for line in lines)
    assert "…" not in "".join(lines)


def test_spare_columns_are_left_out_before_anything_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [*PLAN[:-1], Column("held back by", spare=True)]
    assert drawn(monkeypatch, 100, ROWS, columns)[0].endswith(" held back by")
    lines = drawn(monkeypatch, 80, ROWS, columns)
    assert len(lines) == 4
    says("\n".join(lines), never=["held", "delays", "archive"])


@pytest.mark.parametrize("width", [80, 100, 120])
def test_narrow_table_breaks_paths_and_names_after_a_sign_and_never_a_time(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    path, time = "/var/lib/kafka/data-volume-1/orders.by-customer.eu-central-1.with-a-long-name", "2026-12-21T12:40:15Z"
    columns = [Column(title) for title in ("dir", "seen", "counts?")]
    lines = drawn(monkeypatch, width, [(path, time, f"counts until {time}, or kretain groups forget")], columns)
    assert "\n".join(lines).count(time) == 2
    pieces = [line.split(" ")[0] for line in lines[2:]]
    assert "".join(pieces) == path
    assert all(piece[-1:] in ("", "/", "-", ".") for piece in pieces[:-1] if piece != pieces[-1])


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
def test_groups_unmoved_for_a_day_with_a_lag_are_named(
    groups: list[GroupSummary], said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    print_groups(GroupList("c1", "b:9092", groups, None), "table", NOW, is_first=False)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Idle")]
    assert lines == ([] if said is None else [f"Idle for a day or longer, with records to read: {said}."])


@pytest.mark.parametrize(
    ("form", "is_first", "said"),
    [("table", True, True), ("table", False, False), ("json", True, False), ("json", False, False)],
)
def test_first_look_note_is_only_in_the_table(
    form: str, is_first: bool, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    print_groups(GroupList("c1", "b:9092", [], None), form, NOW, is_first=is_first)
    assert ("kretain has not seen this cluster before" in capsys.readouterr().out) is said


# -- a note is printed once per cluster and day; a state directory that is of no use costs a repeat, and nothing else --


def printed(state: Path, now_ms: int, *texts: str, cluster: str = "c1") -> list[str]:
    with once_a_day(state, cluster, now_ms) as is_new:
        return [text for text in texts if is_new(text)]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    for name in ("c1", "c2"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("later_ms", "texts", "cluster", "shown"),
    [
        pytest.param(DAY - 1, ["clock", "other"], "c1", ["other"], id="within a day"),
        pytest.param(DAY - 1, ["clock"], "c2", ["clock"], id="another cluster"),
        pytest.param(DAY, ["clock"], "c1", ["clock"], id="a day later"),
        pytest.param(-1, ["clock"], "c1", ["clock"], id="a clock set back"),
        pytest.param(1, ["new", "new"], "c1", ["new", "new"], id="twice in a run"),
    ],
)
def test_note_is_printed_once_a_day_and_cluster(
    state: Path, later_ms: int, texts: list[str], cluster: str, shown: list[str]
) -> None:
    assert printed(state, NOW, "clock", "first") == ["clock", "first"]
    assert printed(state, NOW + later_ms, *texts, cluster=cluster) == shown
    printed(state, NOW + 3 * DAY, "last")
    assert len(json.loads((state / "c1" / NOTES_FILE).read_text())) == 1, "what is older than a day is dropped"


@pytest.mark.parametrize("content", ["", "[]", "null", '{"a": "b"}', "[" * 100_000, "x" * (1 << 21), "\udcff"])
def test_damaged_file_costs_a_repeat(state: Path, content: str) -> None:
    (state / "c1" / NOTES_FILE).write_text(content, errors="surrogateescape")
    assert (printed(state, NOW, "clock"), printed(state, NOW + 1, "clock")) == (["clock"], [])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: (state / "c1").rmdir(),
        lambda state: (state / "c1" / NOTES_FILE).mkdir(),
        lambda state: ((state / "c1").rmdir(), (state / "c1").write_text("no folder")),
    ],
)
def test_state_directory_that_cannot_be_written_prints_each_note(state: Path, spoil: Callable[[Path], object]) -> None:
    spoil(state)
    assert [printed(state, NOW + later, "clock") for later in (0, 1)] == [["clock"], ["clock"]]
