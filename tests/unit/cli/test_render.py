"""What people read: tables, sentences and pages, with entire numbers, true words and no markup of others."""

from __future__ import annotations

import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import html5lib
import pytest
from hypothesis import given, settings, strategies as st
from rich.console import Console

from kretain import errors as exits
from kretain.flows.plans import NOTES_FILE, once_a_day
from kretain.render import output
from kretain.render.consumers import print_groups, print_positions
from kretain.render.explain import Marker, picture
from kretain.render.output import Column, Table
from kretain.render.page.elements import GO, MOST_ROWS, bars, cards, element, lines, page, section, table
from kretain.render.page.forecast import forecast_parts
from kretain.render.page.pages import plan_page
from kretain.render.plan import given_back, print_plan, summary
from kretain.render.trim import print_report, question
from retention_cli.core.consumers import NO_GROUP
from retention_cli.core.extras import MissingPartError
from retention_cli.core.model import Code, Decision, Reason, TopicPartition
from retention_cli.core.state_dir import StateError
from retention_cli.disks.disk import Space
from retention_cli.engines.fleet.plan import FleetPlan
from retention_cli.memory.disk import DiskSample
from retention_cli.memory.ledger import Ledger, stored_disk_samples
from retention_cli.plan.saved import SavedPlanError
from retention_cli.plan.value import Plan, Totals, held_back_by
from retention_cli.reports.groups import GroupList, GroupSummary
from retention_cli.reports.offsets import Positions
from retention_cli.reports.plan_summary import command_for, summarize
from retention_cli.trim.report import OutcomeName, TrimReport, TrimRow
from tests.support import plans
from tests.support.docs import parse, reason_codes
from tests.support.plans import HOLD, KEEP, SKIP, plan, row
from tests.support.says import refusal, says
from tests.support.world import written


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
    ("outcome", "unread", "said"),
    [
        ("would-trim", 3, " 3 of them have NOT been read by every consumer that counts. Dry run"),
        ("trimmed", 1, " 1 of them had NOT been read by every consumer that counts."),
        ("trimmed", 0, "9 records trimmed, about 0 B of the leaders' logs. Brokers free"),
    ],
)
def test_report_of_a_trim_counts_the_records_that_were_unread(
    outcome: OutcomeName, unread: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = TrimRow(TopicPartition("orders", 0), outcome, 9, 9, records=9, unconsumed=unread)
    print_report(TrimReport("run", "id", "b:9092", [row]), "table", every_row=False)
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("later", "said"), [(0, False), (2, True)])
def test_report_of_a_trim_counts_what_max_partitions_left(
    later: int, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    left = (Reason("max-partitions", "left for a later run"),)
    rows = [TrimRow(TopicPartition("orders", n), "unchanged", reasons=left if n < later else ()) for n in range(3)]
    print_report(TrimReport("run", "id", "b:9092", rows), "table", every_row=False)
    assert ("\n2 partitions left for a later run (--max-partitions).\n" in capsys.readouterr().out) == said


@pytest.mark.parametrize(
    ("unread_by", "said"),
    [
        ({"group:a": 5}, "12 of them have NOT been read by unknown consumers (7), a (5)."),
        ({}, "12 of them have NOT been read by every consumer that counts."),
    ],
)
def test_question_counts_the_unread_records_below_an_unknown_floor(unread_by: dict[str, int], said: str) -> None:
    rows = [row(unconsumed=5), row(partition=1, unconsumed=7, min_commit=None, min_commit_by=None)]
    assert said in question(replace(plan(*rows), unconsumed_by=unread_by))


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


@pytest.mark.parametrize(
    ("reason", "first"),
    [
        (Reason(Code.F9, "the offsets topic is hidden"), "1 partition: 0 with a floor, 1 unknown."),
        (NO_GROUP, "No committed offset found on these partitions. kretain groups lists all groups."),
    ],
)
def test_offsets_say_that_no_group_has_committed_only_if_all_are_known(
    reason: Reason, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    floor = {"topic": "t", "partition": 0, "min_commit": None, "reasons": [{"code": reason.code, "text": reason.text}]}
    print_positions(Positions("c", "b:1", [floor], []), "table", None, of_groups=True, every_row=False)
    assert capsys.readouterr().out.splitlines()[0] == first


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
            [group(f"g{number}", 10 - number) for number in range(7)],
            ", ".join(f"g{number} since 2025-11-{13 + number}T12:13:20Z" for number in range(5)) + " and 2 more",
        ),
    ],
)
def test_groups_unmoved_for_a_day_with_a_lag_are_named(
    groups: list[GroupSummary], said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    print_groups(GroupList("c1", "b:9092", groups, None), "table", NOW, is_first=False)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Idle")]
    assert lines == ([] if said is None else [f"Idle for a day or longer, with records to read: {said}."])


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


# -- pages: what a cluster's names hold is text there, in any browser; totals are exact and the page stays small --


HOSTILE = (
    "</style></title><script>alert(1)</script><img src=x onerror=alert(1)><svg onload=alert(1)>"
    "\"'`--><!--]]>&amp;&#60;$\\bad{^\x1b[2J\x07\u202egpj.exe\u200b\u2028\ud800\x00\ufffe"
)


DISKS = {"1:/data": [DiskSample(1_795_000_000_000 + n * 3_600_000, 10**9 * n, 10**11) for n in range(20)]}


def topic_row(
    topic: str = "orders", partition: int = 0, by: str | None = "group:billing", text: str = "why"
) -> Decision:
    return plans.row(
        topic=topic,
        partition=partition,
        min_commit=60 if by else None,
        min_commit_by=by,
        trim_to=60,
        records=60,
        size_bytes=600,
        reasons=(Reason("F5", text),),
    )


def plan_of(*rows: Decision, source: str = "policy.yaml", cluster: str = "cluster") -> Plan:
    return plans.plan(*rows, policy_source=source, cluster_id=cluster)


ALLOWED = frozenset(
    (
        *("html", "head", "meta", "title", "style", "body", "header", "h1", "p", "dl", "div", "dt", "dd", "main"),
        *("section", "h2", "table", "thead", "tbody", "tr", "th", "td", "code", "span", "b", "footer", "figure"),
        *("svg", "g", "path", "text", "tspan", "defs", "clipPath", "rect", "use", "line"),
    )
)


def elements(text: str) -> list[Any]:
    root = html5lib.parse(text, treebuilder="etree", namespaceHTMLElements=False)
    return [one for one in root.iter() if isinstance(one.tag, str)]


def names(text: str) -> Counter[str]:
    return Counter(one.tag.rpartition("}")[2] for one in elements(text))


def test_page_with_hostile_names_has_none_of_their_markup() -> None:
    """Nothing is markup but what a benign page has, nothing runs, nothing is fetched, all of it prints."""
    text = plan_page(
        plan_of(topic_row(HOSTILE, 0, f"group:{HOSTILE}", HOSTILE), source=HOSTILE, cluster=HOSTILE), DISKS, []
    )
    says(text, r"\x1b[2J", "&lt;script&gt;alert(1)")
    assert names(text) == names(plan_page(plan_of(topic_row()), DISKS, []))
    assert set(names(text)) <= ALLOWED
    for one in elements(text):
        for name, value in one.attrib.items():
            key = name.rpartition("}")[2]
            assert not re.fullmatch("on.*|src|action|formaction|data", key), (one.tag, key)
            assert key != "href" or value.startswith("#"), value
            assert all(inner.startswith("#") for inner in re.findall(r"url\(\s*['\"]?([^)'\"]*)", value)), value
    assert all(one.isprintable() or one == "\n" for one in text)
    policy = next(one for one in elements(text) if one.get("http-equiv") == "Content-Security-Policy")
    says(policy.get("content"), "default-src 'none'", never=["script"])


TEXT = st.text() | st.text("<>&\"'`-!$\\{}^_/= \x00\x1b\u202e\ud800", max_size=30)


@given(text=TEXT, other=TEXT)
def test_any_name_is_text_on_the_page(text: str, other: str) -> None:
    def made(one: str, two: str) -> str:
        parts = [element("p", one, two, title=one), table((one, two), [(one, two)]), cards([(one, two, "go")])]
        return page(one, two, [(one, two)], section(one, *parts, note=two))

    found = made(text, other)
    assert names(found) == names(made("a", "b"))
    assert all(one.isprintable() or one == "\n" for one in found)


@settings(max_examples=5)
@given(text=TEXT)
def test_any_name_is_text_in_a_chart(text: str) -> None:
    for chart in (bars(text, [text], {text: (GO, [1]), "other": (GO, [2])}), lines(text, {text: [(0, 1.0)]}, text)):
        assert set(names(page("a", "b", [], chart))) <= ALLOWED


def test_page_of_a_large_plan_is_small_with_exact_totals() -> None:
    rows = [topic_row(f"t{n // 10:05}", n % 10, f"group:g{n % 500}", f"why {n % 300}") for n in range(20_000)]
    made = plan_page(plan_of(*rows), DISKS, [])
    assert len(made) < 150_000
    says(made, "Trim 1,200,000 records", f"{MOST_ROWS} of 2,000 topics", f"{MOST_ROWS} of 500 consumers")
    found = summarize(plan_of(*rows))
    totals = found.totals
    assert (totals.records, totals.partitions, totals.size_bytes) == (1_200_000, 20_000, 12_000_000)
    assert (len(found.topics), len(found.reasons)) == (2_000, 300)
    assert [one.records for _, one in found.consumers] == [1600] * 500


def test_page_counts_holding_groups_by_the_deciding_reason() -> None:
    held = topic_row("b", by="group:slow")._replace(action="hold", min_commit=10, trim_to=None, records=0)
    done = topic_row("c", by="group:done")._replace(action="keep", min_commit=100, trim_to=None, records=0)
    found = summarize(plan_of(topic_row("a"), held, done))
    assert [(name, one.records) for name, one in found.consumers] == [("group:slow", 90), ("group:billing", 40)]
    assert [(one.name, one.totals.records, one.held_records, one.staying) for one in found.topics] == [
        ("a", 60, 0, 40),
        ("b", 0, 100, 0),
        ("c", 0, 0, 100),
    ]


def test_empty_plan_makes_a_page() -> None:
    says(
        plan_page(plan_of(), {}, ["the ledger can't be read"]), "No changes. No partitions.", "the ledger can't be read"
    )


@pytest.mark.parametrize("code", sorted(reason_codes()))
def test_command_suggested_on_the_page_exists(code: str) -> None:
    line = command_for(code).replace("{topic}", "orders").replace("{place}", "orders:3")
    parse([*line.split()[1:], "-b", "localhost:9092"])


def test_page_reads_disk_history_without_changing_it(tmp_path: Path) -> None:
    assert (stored_disk_samples(tmp_path), list(tmp_path.iterdir())) == ({}, [])
    with closing(Ledger(tmp_path / "c")) as ledger:
        for disk in ("1:/data", "1:/data:unexplained"):
            ledger.disk(disk).add(DiskSample(5, 1, 10))
        ledger.save(5)
    file = tmp_path / "c" / "ledger.sqlite"
    before = file.read_bytes(), file.stat().st_mtime_ns
    assert stored_disk_samples(tmp_path / "c") == {"1:/data": (DiskSample(5, 1, 10),)}
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    file.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    assert "can't be used" in refusal(StateError, stored_disk_samples, tmp_path / "c")


def saved_forecast(path: Path, name: str, cluster: str = "cluster") -> Path:
    topic = {"topic": name, "alone": "steady", "alone_bytes_high": 900, "policy": "steady", "policy_bytes_high": 100}
    group = {"group": name, "topic": name, "lag": 5, "cause": "R4", "seconds_to_loss": 7200}
    full = {"full_alone_in_known": True, "full_alone_in_ms_low": 86_400_000 * 3, "full_policy_in_known": True}
    made = {
        "format": "kretain.forecast/v1",
        "created_at": name,
        "cluster": {"id": cluster},
        "policy": {"source": name},
        "totals": dict.fromkeys(("topics", "steady", "unknown", "endless_alone"), 1)
        | {"saved_bytes_low": 0, "saved_bytes_high": 800},
        "topics": [topic],
        "groups": [group],
        "cost": {
            "currency": "EUR",
            "cost_saved_month_low": 5,
            "cost_saved_month_high": 7.5,
            "labels": [{"label": name, "topics": 1, "cost_now_low": 2, "cost_now_high": None}],
            "consumers": [{"consumer": name, "cost_unread_month_low": 0, "cost_unread_month_high": 0.5}],
        },
        "disks": [{"broker": 1, "dirs": [name], **full, "full_policy_in_ms_low": None}],
    }
    return written(path, json.dumps(made))


def test_forecast_on_the_page_is_escaped(tmp_path: Path) -> None:
    plain, hostile = (
        page("a", "b", [], *forecast_parts(saved_forecast(tmp_path / "f.json", name), "cluster"))
        for name in ("benign", HOSTILE.replace("\ud800", ""))  # no JSON has half a character
    )
    assert names(plain) == names(hostile)
    says(
        plain,
        *("saves 0 B to 800 B", "in 3 d at the earliest"),
        *("Money, in EUR", "5.00–7.50", "≥ 2.00", "≤ 0.50"),
    )


def test_forecast_of_another_cluster_is_refused(tmp_path: Path) -> None:
    file = saved_forecast(tmp_path / "f.json", "x", "other")
    assert "is a forecast for cluster" in refusal(SavedPlanError, forecast_parts, file, "cluster")
    file.write_text('{"format": "kretain.plan/v1"}', encoding="utf-8")
    assert "has format" in refusal(SavedPlanError, forecast_parts, file, "cluster")


def test_missing_matplotlib_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "[report]" in refusal(MissingPartError, plan_page, plan_of(topic_row()), {}, [])
