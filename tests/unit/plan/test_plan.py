"""A plan: its JSON is a contract (docs/plan.md, The plan); whose unread records it trims, and what holds a row."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

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
from retention_cli.plan.parquet import read_plan
from retention_cli.plan.saved import SavedPlanError
from retention_cli.plan.value import (
    StoredDecisions,
    Totals,
    as_json,
    as_parquet,
    decisions_in,
    delete_records_json,
    having,
    most_important,
)
from retention_cli.policy.settings import Settings
from tests.support.facts import HOUR, policy, topic
from tests.support.plans import EVERY, HOLD, row
from tests.support.refusals import refusal


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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "kretain.plan/v2"}, "v2"),
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
    with pytest.raises(SavedPlanError, match=said) as error:
        read_plan(saved(tmp_path, **changes))
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\x00\xff", b'{"format": "kretain.plan/v1"}', b"{}" * 3, b"[" * 100_000],
)
def test_file_that_is_no_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.json"
    assert "No such file" in refusal(SavedPlanError, read_plan, path)
    path.write_bytes(content)
    refusal(SavedPlanError, read_plan, path)


def test_narrowing_edit_of_a_json_plan_is_accepted(tmp_path: Path) -> None:
    assert read_plan(saved(tmp_path, row={"trim_to": 20})).decisions[0].trim_to == 20
    assert read_plan(saved(tmp_path, row={"action": "keep", "trim_to": None})).decisions[0].action == "keep"


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


@given(in_order, st.integers(-13, 13), st.integers(-13, 13))
def test_stored_decisions_can_be_sliced_and_iterated_again(rows: list[Decision], first: int, last: int) -> None:
    there = stored(rows)
    assert len(there) == len(rows)
    assert list(there) == list(there) == rows
    assert list(there[first:last]) == rows[first:last]


@given(in_order, st.integers(1, 6))
def test_most_important_stored_decisions_equal_those_in_memory(rows: list[Decision], count: int) -> None:
    assert most_important(stored(rows), count) == most_important(rows, count)


@given(in_order, actions)
def test_stored_decisions_filter_like_those_in_memory(rows: list[Decision], wanted: list[str]) -> None:
    for reasons in (False, True):
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
        assert decisions_in(content) == tuple(rows)
        assert decisions_in(content, 2) == tuple(rows)
        assert isinstance(decisions_in(content, 3), StoredDecisions)


HELD = Reason("G1", "R1 would trim to 7, but an open transaction begins at 3")


def kept(partition: int, *reasons: Reason) -> Decision:
    return Decision("t", "id", partition, "keep", 3, 9, 3, 7, "group:g", None, 0, 0, 0, None, None, reasons)


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
    held = kept(0, HELD, Reason("G1", "R1 would trim to 9, but the high watermark"))
    other = kept(1, HELD)
    owner = OpenTransaction(5, 1_000, "orders")
    reader: Any = SimpleNamespace(open_transactions=lambda _partitions: {held.tp: owner})
    named = with_owners(reader, [held, other])
    assert [one.text for one in named[0].reasons] == [f"{HELD.text}, {owner_text(owner)}", held.reasons[1].text]
    assert named[1] == other


ALONE = "version: 1\ntopics: [{match: '*', retention.ms: 1d}]\n"
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
    notes = reached_by_pattern([about], {about.name: chosen}, policy(ALONE))
    assert [(one.code, about.name in one.text) for one in notes] == ([("G5", True)] if noted else [])


def test_disk_rule_note_lists_topics_kept_forever_by_a_pattern() -> None:
    disks = policy(
        "version: 1\ndisks: {log.retention.disk.usage.percent: 80, capacity: 1TiB}\ntopics: [{match: '*'}]\n"
    )
    assert disks.disks.percent is not None
    topics = [topic(f"t{number}") for number in range(9)]
    (note,) = reached_by_pattern(topics, {one.name: Settings() for one in topics}, disks)
    assert note.text.startswith("t0, t1, t2 and 6 more: retention.ms is -1")


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
    assert off_disks([about], {about.name: chosen}) == found
    assert [about.name in note.text for note in found.notes()] == [True] * len(found.notes())


def test_notes_name_three_topics_and_how_to_confirm() -> None:
    topics = [topic(f"t{number}", tiered=True) for number in range(9)]
    (note,) = off_disks(topics, {one.name: REACHED for one in topics}).notes()
    assert note.text.startswith("t0, t1, t2 and 6 more: ")
    assert "tiered: trim" in note.text
    (confirmed,) = off_disks(topics, {one.name: CONFIRMED for one in topics}).notes()
    assert "tiered: trim" not in confirmed.text
