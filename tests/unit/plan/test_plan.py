"""A plan, whose JSON is a contract (docs/plan.md), and saved ones: read back as they were, or refused with the place."""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from retention_cli.brokers.log_offsets import OpenTransaction
from retention_cli.core.model import Decision, Reason, TopicFacts
from retention_cli.observe.floors.fold import Commit
from retention_cli.plan.make import (
    GoneCommits,
    OffDisks,
    lost_of,
    off_disks,
    owner_text,
    reached_by_pattern,
    unread_by_group,
    with_owners,
)
from retention_cli.plan.reconcile import Target, reconcile
from retention_cli.plan.saved import HEAD_FILE, KEY, Entry, ParquetPlans, SavedPlanError, read_plan, write_plan
from retention_cli.plan.value import (
    Plan,
    StoredDecisions,
    Totals,
    as_json,
    as_parquet,
    decisions_in,
    delete_records_json,
    having,
    head_as_json,
    most_important,
    plan_text,
    row_as_json,
    schema,
)
from retention_cli.policy.load import parse_policy
from retention_cli.policy.selection import Selection
from retention_cli.policy.settings import OneOff, Settings
from retention_cli.trim.run import PlanRefusedError, check_cluster, check_saved
from tests.support.facts import HOUR, policy, topic
from tests.support.plans import EVERY, HOLD, KEEP, LOOSE, of_spark, plans, row
from tests.support.says import refusal, says


def test_delete_records_json_is_kafkas_format() -> None:
    assert delete_records_json(EVERY) == {
        "partitions": [
            {"topic": "orders", "partition": 0, "offset": 50},
            {"topic": "orders", "partition": 1, "offset": 50},
        ],
        "version": 1,
    }


def test_plan_totals_count_only_trimmed_rows() -> None:
    totals = Totals.of([row(unconsumed=5), row(partition=1, records=7, size_bytes=70), HOLD._replace(records=99)])
    assert (totals.records, totals.size_bytes, totals.unconsumed) == (57, 570, 5)


def saved(tmp_path: Path, **changes: Any) -> Path:
    content = as_json(EVERY)
    content["partitions"][0].update(changes.pop("row", {}))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(content | changes))
    return path


def refused(path: Path) -> str:
    """Read a plan that is refused, in one line that names it; return that."""
    text = refusal(SavedPlanError, read_plan, path)
    says(text, str(path), never=["\n"])
    return text


def read_or_refused(path: Path) -> Plan | None:
    try:
        return read_plan(path)
    except SavedPlanError:
        refused(path)
        return None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "kretain.plan/v2"}, "has format 'kretain.plan/v2'; this kretain carries out"),
        ({"format": None}, "format"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"created_at": "2026-11-21T03:00:00"}, "time zone"),
        ({"cluster": {"id": ""}}, "cluster"),
        ({"partitions": "many"}, "partitions"),
        ({"row": {"partition": 1}}, "more than one row"),
        ({"row": {"partition": -1}}, "partition"),
        ({"row": {"partition": 0.5}}, "partition"),
        ({"row": {"partition": True}}, "partition"),
        ({"row": {"trim_to": 101}}, "outside"),
        ({"row": {"trim_to": -1}}, "trim_to"),
        ({"row": {"trim_to": "50"}}, "trim_to"),
        ({"row": {"trim_to": None}}, "needs"),
        ({"row": {"topic_id": None}}, "needs"),
        ({"row": {"log_start": 200}}, "beyond"),
        ({"row": {"log_start": 60}}, "outside"),
        ({"row": {"min_commit": -5}}, "min_commit"),
        ({"row": {"records": -5}}, "records"),
        ({"row": {"unconsumed": -5}}, "unconsumed"),
        ({"row": {"action": "delete"}}, "action"),
        ({"row": {"topic": ""}}, "topic"),
        ({"row": {"high_watermark": 2**63}}, "high_watermark"),
    ],
)
def test_impossible_plan_is_refused_with_its_place(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    assert said in refused(saved(tmp_path, **changes))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((one, None) for one in (b"", b"{", b"[]", b"null", b"\x00\xff", b"{}" * 3, b"[" * 100_000)),
        (b'{"format": "kretain.plan/v1"}', None),
        (b"{}", 'is not a saved plan: it has no "format" (expected kretain.plan/v1)'),
    ],
)
def test_file_that_is_no_plan_is_refused(tmp_path: Path, content: bytes, said: str | None) -> None:
    path = tmp_path / "plan.json"
    assert "No such file" in refusal(SavedPlanError, read_plan, path)
    path.write_bytes(content)
    found = refusal(SavedPlanError, read_plan, path)
    assert said is None or found == f"{path} {said}"


@pytest.mark.parametrize("edit", [{"trim_to": 20}, {"action": "keep", "trim_to": None}])
def test_narrowing_edit_of_a_json_plan_is_accepted(tmp_path: Path, edit: dict[str, Any]) -> None:
    assert read_plan(saved(tmp_path, row=edit)).decisions[0] == EVERY.decisions[0]._replace(**edit)


numbers = st.none() | st.integers(0, 3) | st.integers(0, 2**62)
names = st.sampled_from(["group:a", "group:G1", "file:a", "G1"])
decisions = st.builds(
    Decision,
    topic=st.sampled_from("abc") | st.text(min_size=1, max_size=20),
    topic_id=st.none() | st.text(max_size=22),
    partition=st.integers(0, 2**31 - 1),
    action=st.sampled_from(["trim", "keep", "hold", "skip"]),
    log_start=numbers,
    high_watermark=numbers,
    last_stable_offset=numbers,
    min_commit=numbers,
    min_commit_by=st.none() | names | st.text(max_size=9),
    trim_to=numbers,
    records=st.integers(0, 2**62),
    size_bytes=numbers,
    unconsumed=st.integers(0, 2**62),
    rule=st.sampled_from([None, "consumed", "disk-usage"]),
    limited_by=st.sampled_from([None, "G1", "G2", "G9"]),
    reasons=st.lists(
        st.builds(Reason, st.sampled_from(["F5", "G2"]) | st.text(max_size=5), st.text(max_size=30)), max_size=3
    ).map(tuple),
    size_exact=st.booleans(),
    leader_epoch=st.none() | st.integers(-1, 2**31 - 1),
)


in_order = st.lists(decisions, max_size=12, unique_by=lambda one: one.tp).map(  # as in a plan
    lambda rows: sorted(rows, key=lambda one: one.tp)
)
actions = st.lists(st.sampled_from(["trim", "keep", "hold", "skip"]), min_size=1, unique=True)


def stored(rows: list[Decision], at_a_time: int = 5) -> StoredDecisions:
    return StoredDecisions(as_parquet(rows[first : first + at_a_time]) for first in range(0, len(rows), at_a_time))


@given(in_order, st.integers(-13, 13), st.integers(-13, 13), st.integers(1, 6), actions, st.booleans())
def test_stored_decisions_iterate_slice_rank_and_filter_like_those_in_memory(
    rows: list[Decision], first: int, last: int, count: int, wanted: list[str], reasons: bool
) -> None:
    there = stored(rows)
    assert (len(there), list(there), list(there), list(there[first:last])) == (len(rows), rows, rows, rows[first:last])
    assert most_important(there, count) == most_important(rows, count)
    assert list(having(stored(rows, 3), *wanted, reasons=reasons)) == list(having(rows, *wanted, reasons=reasons))


@given(st.lists(decisions, max_size=9), st.lists(decisions, max_size=9))
def test_totals_of_parts_add_up_to_the_total(one: list[Decision], other: list[Decision]) -> None:
    assert Totals.of(one) + Totals.of(other) == Totals.of([*one, *other])


@given(st.lists(decisions, min_size=3, max_size=3))
def test_row_limit_in_memory_is_shared_by_the_plans_of_a_fleet(rows: list[Decision]) -> None:
    """What a fleet's plans have in memory does not grow with the number of its clusters."""
    content = [as_parquet(rows)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("retention_cli.plan.value.IN_MEMORY", 6)
        assert decisions_in(content) == decisions_in(content, 2) == tuple(rows)
        assert isinstance(decisions_in(content, 3), StoredDecisions)


HELD = Reason("G1", "R1 would trim to 7, but an open transaction begins at 3")


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        (
            OpenTransaction(5, 1_000, "orders", 2_000),
            "of transactional.id orders (producer 5), open since 1970-01-01T00:00:02.000Z",
        ),
        (OpenTransaction(5, 1_000, "orders"), "of transactional.id orders (producer 5)"),
        (OpenTransaction(5, 1_000), "of producer 5, which last wrote there at 1970-01-01T00:00:01.000Z"),
    ],
)
def test_known_owner_of_an_open_transaction_is_named(owner: OpenTransaction, text: str) -> None:
    assert owner_text(owner) == text


def test_transaction_owner_changes_only_the_reason_about_that_transaction() -> None:
    more = Reason("G1", "R1 would trim to 9, but the high watermark")
    held, other = KEEP._replace(reasons=(HELD, more)), KEEP._replace(partition=1, reasons=(HELD,))
    owner = OpenTransaction(5, 1_000, "orders")
    reader: Any = SimpleNamespace(open_transactions=lambda _partitions: {held.tp: owner})
    named = with_owners(reader, [held, other])
    assert ([one.text for one in named[0].reasons], named[1]) == (
        [f"{HELD.text}, {owner_text(owner)}", held.reasons[1].text],
        other,
    )


R4 = Settings(forced_age_ms=HOUR)


@pytest.mark.parametrize(
    ("about", "chosen", "noted"),
    [
        (topic(), R4, True),
        (topic(), Settings(max_bytes=1), True),
        (topic(), Settings(max_topic_bytes=1), True),
        (topic(), Settings(consumed_after_ms=HOUR), False),
        (topic(), replace(R4, named_in_full=True), False),
        (topic(retention_ms=HOUR), R4, False),
        (topic("_schemas"), R4, False),  # it is not touched at all
    ],
)
def test_keep_forever_topic_matched_by_a_pattern_is_named(about: TopicFacts, chosen: Settings, *, noted: bool) -> None:
    assert [
        (one.code, about.name in one.text)
        for one in reached_by_pattern(
            [about], {about.name: chosen}, policy("version: 1\ntopics: [{match: '*', retention.ms: 1d}]\n")
        )
    ] == ([("G5", True)] if noted else [])


def test_disk_rule_note_lists_topics_kept_forever_by_a_pattern() -> None:
    disks = policy(
        "version: 1\ndisks: {log.retention.disk.usage.percent: 80, capacity: 1TiB}\ntopics: [{match: '*'}]\n"
    )
    topics = [topic(f"t{number}") for number in range(9)]
    (note,) = reached_by_pattern(topics, {one.name: Settings() for one in topics}, disks)
    assert note.text.startswith("t0, t1, t2 and 6 more: the topics' own retention.ms is -1 (kept forever)")
    (note,) = reached_by_pattern(topics[:1], {"t0": Settings()}, disks)
    assert note.text == (
        "t0: the topic's own retention.ms is -1 (kept forever), and only a pattern in the policy matches it. To keep "
        "the records, exclude the topic or set hold; to trim them, name the topic in full"
    )


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


REACHED = Settings(consumed_after_ms=HOUR)
CONFIRMED = Settings(consumed_after_ms=HOUR, trim_tiered=True)
NONE = OffDisks([], [], [])


@pytest.mark.parametrize(
    ("about", "chosen", "found"),
    [
        (topic(), REACHED, NONE),
        (topic(tiered=True), Settings(), NONE),  # no rule reaches it
        (topic("_schemas", tiered=True), REACHED, NONE),  # it is not touched at all
        (topic(tiered=True), REACHED, OffDisks(["orders"], [], [])),
        (topic(tiered=True), Settings(event_time_ms=HOUR), OffDisks(["orders"], [], [])),
        (topic(tiered=True), Settings(min_timestamp_ms=1), OffDisks(["orders"], [], [])),
        (topic(tiered=True), Settings(forced_age_ms=HOUR), OffDisks(["orders"], [], [])),
        (topic(tiered=True), Settings(max_bytes=1), OffDisks(["orders"], [], [])),
        (topic(tiered=True), Settings(max_topic_bytes=1), OffDisks(["orders"], [], [])),
        (topic(tiered=True), CONFIRMED, OffDisks([], ["orders"], [])),
        (topic(diskless=True), REACHED, OffDisks([], [], ["orders"])),
        (topic(tiered=True, diskless=True), REACHED, OffDisks(["orders"], [], ["orders"])),
    ],
)
def test_topic_off_disks_is_named_where_a_rule_reaches_it(about: TopicFacts, chosen: Settings, found: OffDisks) -> None:
    assert (off_disks([about], {about.name: chosen}), [about.name in note.text for note in found.notes()]) == (
        found,
        [True] * len(found.notes()),
    )


@pytest.mark.parametrize(("chosen", "unconfirmed"), [(REACHED, True), (CONFIRMED, False)])
def test_notes_name_three_topics_and_how_to_confirm(chosen: Settings, *, unconfirmed: bool) -> None:
    topics = [topic(f"t{number}", tiered=True) for number in range(9)]
    (note,) = off_disks(topics, {one.name: chosen for one in topics}).notes()
    assert note.text.startswith("t0, t1, t2 and 6 more: ")
    assert ("tiered: trim" in note.text) is unconfirmed


FRESH = {
    one.tp: one
    for one in (
        row(),
        row(partition=1, trim_to=30, min_commit=30),
        row(partition=2),
        row(partition=3, log_start=45),
        KEEP,
        HOLD,
    )
}
"""What today's facts allow, partition by partition: as planned, less, none, the last of it."""
SELECTION = Selection(parse_policy("version: 1\ntopics: [{match: orders, retention.ms: 1d}]", "p.yaml", "sha256:0"))
NOW = EVERY.created_at_ms + 1000

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-2, 120)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["trim", "keep", "hold", "skip", "orders", "id-1", "id-2", "G1", "consumed", "kretain.plan/v1"])
    | st.sampled_from(
        ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-11-21T03:00:00Z", "NaN", "+10000-01-01"]
    )
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def places(node: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON document, as the keys that lead to it."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [here, *(place for key, value in inner for place in places(value, (*here, key)))]


def changed(document: Any, place: tuple[Any, ...], how: str, value: Any) -> Any:
    if not place:
        return value
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    if how == "drop":
        del inner[place[-1]]
    elif how == "double" and isinstance(inner, list):
        inner.append(copy.deepcopy(inner[place[-1]]))
    else:
        inner[place[-1]] = value
    return document


def refused_or_trims_no_more(folder: Path, content: bytes, max_age_ms: int = 3_600_000) -> None:
    """Go the way of ``trim --plan`` as far as it goes without a cluster."""
    (folder / "plan.json").write_bytes(content)
    plan = read_or_refused(folder / "plan.json")
    if plan is None:
        return
    try:
        check_saved(plan, SELECTION, NOW, max_age_ms)
        check_cluster(plan, "c1")
    except PlanRefusedError as error:
        assert str(error)
        return
    for planned in plan.decisions:
        allowed: Decision | None = FRESH.get(planned.tp)
        result = reconcile(planned, allowed) if planned.action == "trim" else None
        if isinstance(result, Target):
            assert allowed is not None
            assert (allowed.action, allowed.topic_id) == ("trim", planned.topic_id)
            assert (allowed.log_start or 0) < result.offset <= (allowed.trim_to or 0)
    plan_text(plan)  # what the audit log and the report take from it can be written


@given(st.data())
def test_edited_plan_is_refused_or_trims_no_more(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    document = json.loads(plan_text(EVERY))
    for _ in range(data.draw(st.integers(1, 3))):
        if isinstance(document, dict | list):
            place, how = data.draw(st.sampled_from(places(document))), st.sampled_from(["set", "set", "drop", "double"])
            document = changed(document, place, data.draw(how), data.draw(values))
    refused_or_trims_no_more(tmp_path_factory.mktemp("plans"), json.dumps(document).encode())


@given(st.data())
def test_damaged_plan_file_is_refused_or_trims_no_more(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(plan_text(EVERY).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["byte", "cut", "drop", "digit"])):
            case "byte":
                content[at] = data.draw(st.integers(0, 255))
            case "cut":
                del content[at:]
            case "drop":
                del content[at : at + data.draw(st.integers(1, 40))]
            case "digit":
                content[at:at] = b"9"
        if not content:
            break
    refused_or_trims_no_more(tmp_path_factory.mktemp("plans"), bytes(content))


@pytest.mark.parametrize(
    "created_at",
    ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"],
)
@pytest.mark.parametrize("max_age_ms", [3_600_000, 10**18])
def test_plan_with_an_extreme_time_is_refused_or_printable(tmp_path: Path, created_at: str, max_age_ms: int) -> None:
    refused_or_trims_no_more(tmp_path, saved(tmp_path, created_at=created_at).read_bytes(), max_age_ms)


FLAGS = OneOff(patterns=("orders",), older_than_ms=86_400_000)


@pytest.mark.parametrize(
    ("changes", "chosen", "later_ms", "said"),
    [
        ({}, SELECTION, 3_600_000, None),
        ({}, SELECTION, 3_600_001, "is 1h old (limit 1h): run kretain plan again"),
        ({}, SELECTION, -60_000, None),
        ({}, SELECTION, -60_001, "in the future"),
        ({"cluster_id": "c2"}, SELECTION, 0, "the plan is for cluster c2, not c1"),
        ({"flags": FLAGS.flags()}, SELECTION, 0, "made with --older-than 1d: give exactly these rules"),
        (
            {},
            Selection(SELECTION.policy.with_one_off(FLAGS), ("orders",)),
            0,
            "made without one-off rules: remove --older-than",
        ),
        (
            {"flags": FLAGS.flags(), "topics": ("orders",)},
            Selection(SELECTION.policy.with_one_off(FLAGS), ("orders",)),
            0,
            None,
        ),
        (
            {"flags": FLAGS.flags(), "topics": ("orders",)},
            Selection(SELECTION.policy.with_one_off(FLAGS), ("orders", "payments")),
            0,
            "for TOPIC orders",
        ),
    ],
)
def test_saved_plan_is_valid_only_for_its_cluster_age_and_flags(
    changes: dict[str, Any], chosen: Selection, later_ms: int, said: str | None
) -> None:
    def check_both(plan: Plan) -> None:
        check_saved(plan, chosen, EVERY.created_at_ms + later_ms, 3_600_000)
        check_cluster(plan, "c1")

    plan = replace(EVERY, **changes)
    if said is None:
        check_both(plan)
    else:
        assert said in refusal(PlanRefusedError, check_both, plan)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans)
def test_plan_reads_back_equal_from_json_and_parquet(made: Plan) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text, columns = Path(folder, "plan.json"), Path(folder, "plan.parquet")
        text.write_text(plan_text(made), encoding="utf-8")
        write_plan(columns, made)
        assert read_plan(columns) == read_plan(text) == made


def test_parquet_columns_and_head_are_named_as_in_json(tmp_path: Path) -> None:
    write_plan(path := tmp_path / "plan.parquet", EVERY)
    table = pq.read_table(path)
    assert (
        table.column_names,
        [{k: v for k, v in one.items() if k != "cluster"} for one in table.to_pylist()],
        set(table["cluster"].to_pylist()),
        json.loads(pq.ParquetFile(path).metadata.metadata[KEY.encode()]),
    ) == (
        ["cluster", *row_as_json(EVERY.decisions[0])],
        [row_as_json(one) for one in EVERY.decisions],
        {EVERY.cluster_id},
        head_as_json(EVERY),
    )


def test_folder_of_parts_in_any_order_reads_as_the_same_plan(tmp_path: Path) -> None:
    rows = [("c1", one) for one in reversed(EVERY.decisions)]
    assert read_plan(of_spark(tmp_path / "plan", head_as_json(EVERY), rows[3:], [], rows[:3])) == EVERY


PART = "part-00001-c000.snappy.parquet"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / HEAD_FILE).unlink(), "not a complete plan: it has no _plan.json"),
        (lambda folder: (folder / HEAD_FILE).write_text("{"), "_plan.json:1 is not a valid plan file"),
        (lambda folder: (folder / HEAD_FILE).write_text("[]"), "not a JSON object"),
        (lambda folder: (folder / "_temporary").mkdir(), "still writing"),
        (lambda folder: (folder / PART).unlink(), "incomplete: cluster c1 has 3 rows"),
        (lambda folder: (folder / PART).write_bytes(b"PAR1"), "not a complete Parquet file"),
        (lambda folder: shutil.copy(folder / PART, folder / "again.parquet"), "its head says 5"),
    ],
)
def test_incomplete_plan_folder_is_refused(tmp_path: Path, spoil: Callable[[Path], Any], said: str) -> None:
    rows = [("c1", one) for one in EVERY.decisions]
    folder = of_spark(tmp_path / "plan", head_as_json(EVERY), rows[:3], rows[3:])
    spoil(folder)
    assert said in refused(folder)


def test_plan_file_that_changes_after_opening_is_refused(tmp_path: Path) -> None:
    write_plan(path := tmp_path / "plan.parquet", EVERY)
    opened = ParquetPlans(path)
    plan = opened.plans([Entry("", "", opened.head)])[""]
    write_plan(path, replace(EVERY, decisions=EVERY.decisions[:4]))
    assert "cluster c1 has 4 rows, its head says 5" in refusal(SavedPlanError, plan)


def written(tmp_path: Path, *, rows: list[dict[str, Any]], columns: pa.Schema = LOOSE, **head: Any) -> Path:
    path = tmp_path / "plan.parquet"
    head = head_as_json(EVERY) | head
    pq.write_table(pa.Table.from_pylist(rows, columns.with_metadata({KEY: json.dumps(head)})), path)
    return path


ROWS = [{"cluster": "c1", **row_as_json(one)} for one in EVERY.decisions]


@pytest.mark.parametrize(
    ("of_row", "of_head", "said"),
    [
        *(
            (change, {}, said)
            for change, said in [
                ({"partition": 1}, "orders-1 has more than one row"),
                ({"partition": -1}, "orders--1.partition"),
                ({"partition": None}, "partition"),
                ({"trim_to": 101}, "outside"),
                ({"trim_to": None}, "needs"),
                ({"topic_id": None}, "needs"),
                ({"log_start": 200}, "beyond"),
                ({"min_commit": -5}, "min_commit"),
                ({"records": None}, "records"),
                ({"unconsumed": -1}, "unconsumed"),
                ({"action": "delete"}, "action"),
                ({"action": None}, "action"),
                ({"topic": ""}, "topic"),
                ({"rule": "whim"}, "rule"),
                ({"reasons": None}, "reasons"),
                ({"reasons": [{"code": "F3", "text": None}]}, "reasons"),
                ({"cluster": "c2"}, "rows of cluster c2, which its head does not name"),
                ({"cluster": None}, "rows of cluster None"),
            ]
        ),
        *(
            ({}, change, said)
            for change, said in [
                ({"format": "kretain.plan/v2"}, "v2"),
                ({"format": "kretain.fleet-plan/v1"}, "the plan of a fleet: also give --fleet"),
                ({"created_at": "yesterday"}, "created_at"),
                ({"cluster": {"id": ""}}, "cluster"),
                ({"totals": {}}, "totals.partitions"),
                ({"totals": {"partitions": 4}}, "5 rows, its head says 4"),
            ]
        ),
    ],
)
def test_impossible_row_or_head_is_refused_with_its_place(
    tmp_path: Path, of_row: dict[str, Any], of_head: dict[str, Any], said: str
) -> None:
    assert said in refused(written(tmp_path, rows=[ROWS[0] | of_row, *ROWS[1:]], **of_head))


@pytest.mark.parametrize("name", schema().names)
def test_missing_column_or_one_of_another_type_is_refused(tmp_path: Path, name: str) -> None:
    place = LOOSE.get_field_index(name)
    rows = [{key: value for key, value in one.items() if key != name} for one in ROWS]
    for columns in (LOOSE.remove(place), LOOSE.set(place, pa.field(name, pa.float64()))):
        assert f"column {name} is" in refused(written(tmp_path, rows=rows, columns=columns))


def test_foreign_or_missing_parquet_file_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path := tmp_path / "other.parquet")
    assert "its metadata has no kretain.plan" in refused(path)
    assert "cannot be read: No such file" in refused(tmp_path / "nowhere.parquet")


def test_truncated_or_damaged_plan_file_is_refused_or_reads_equal(tmp_path: Path) -> None:
    """Bytes of rows have checksums; a head is text, which an edit may change as it may a JSON plan's."""
    write_plan(path := tmp_path / "plan.parquet", EVERY)
    whole = path.read_bytes()
    for end in (0, 4, 11, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert "not a complete Parquet file" in refused(path)
    for place in range(0, len(whole), 13):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
        found = read_or_refused(path)
        assert found is None or found.decisions == EVERY.decisions, place


def test_plan_with_reordered_or_dictionary_columns_is_accepted(tmp_path: Path) -> None:
    """As other writers like them."""
    columns = pa.schema([LOOSE.field(name) for name in sorted(LOOSE.names)])
    for name in ("cluster", "topic"):
        columns = columns.set(columns.get_field_index(name), pa.field(name, pa.dictionary(pa.int32(), pa.string())))
    assert read_plan(written(tmp_path, rows=ROWS, columns=columns)) == EVERY
