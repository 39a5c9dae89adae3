"""A look from row to row comes to what an object comes to, and a ledger loses none that it has not written yet."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_cli.core.model import EventMax, Sample
from retention_cli.core.state_dir import StateError
from retention_cli.memory.document_ledger import DocumentLedger
from retention_cli.memory.documents import topic_key
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.ledger_file import PARTITION_COLUMNS
from retention_cli.memory.lineage import prove
from retention_cli.memory.partition import Front, PartitionMemory
from retention_cli.memory.partition_rows import INSERT, INSERT_PLAIN, plain_rows, row_of, values_of
from retention_cli.memory.plain_look import PlainLook, looked
from retention_cli.memory.samples import SAMPLES_AT_MOST
from retention_cli.memory.shared_cache import SharedCache

LOOK = st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 9), st.integers(0, 50), st.sampled_from([1, 0]))
"""Leader epoch, S, H beyond S, our clock, and whether the topic is CreateTime."""
ODD = st.sampled_from(
    [
        {},
        {},
        {"newest": EventMax(5, 3)},
        {"data_at": (3,)},
        {"scan": b"scan"},
        {"front": Front(0, append_time=True)},
        {"created_below": 4},
        {"replicas": bytes(32)},
        {"last_epoch": None},
        {"last_epoch": 0},
    ]
)
Look = tuple[int, int, int, int, int]


def add(memory: PartitionMemory, look: PlainLook, wall_ms: int, *, created: bool | None) -> None:
    """What a look adds to an object."""
    assert prove(memory, look.leader_epoch, look.log_start, look.high_watermark, {}, wall_ms) is None
    memory.add_sample(Sample(wall_ms, look.high_watermark))
    if created is not None:
        memory.saw_stamps(look.high_watermark, append_time=not created)


@settings(max_examples=500)
@given(looks=st.lists(LOOK, min_size=1, max_size=8), odd=ODD, unknown=st.booleans())
def test_a_row_becomes_what_an_object_becomes(looks: list[Look], odd: dict[str, Any], *, unknown: bool) -> None:
    known: PartitionMemory | None = None
    for epoch, start, more, wall_ms, created in looks:
        look, stamps = PlainLook(0, epoch, start, start + more), None if unknown else bool(created)
        before = None if known is None else values_of(known)
        after = looked(before, look, wall_ms, created=stamps)
        mine = PartitionMemory() if known is None else replace(known, changed=False)
        if after is not None:
            add(mine, look, wall_ms, created=stamps)
            assert after == values_of(mine)
            assert mine.changed == (after != before) or before is None
        else:
            assert known is not None
            mine.begin_anew(epoch, start)
            add(mine, look, wall_ms, created=stamps)
        known = replace(mine, **odd) if after is not None else mine


@given(looks=st.lists(LOOK, min_size=1, max_size=8), topic_id=st.sampled_from(["x", "it's", 'a"b', 'it\'s "b"', "é\n"]))
def test_a_plain_row_is_written_as_any_other(looks: list[Look], topic_id: str) -> None:
    """Its checksum, too: a ledger in which one is not what it should be is damaged, and holds everything (F6)."""
    found = []
    for number, (epoch, start, more, wall_ms, created) in enumerate(looks):
        first = looked(None, PlainLook(number, epoch, start, start), wall_ms, created=bool(created))
        after = looked(first, PlainLook(number, epoch, start, start + more), wall_ms + 9, created=bool(created))
        found.append((number, after or ()))
    with closing(sqlite3.connect(":memory:")) as db:
        written = []
        for statement, rows in (
            (INSERT, [row_of(topic_id, *one) for one in found]),
            (INSERT_PLAIN, list(plain_rows(topic_id, found))),
        ):
            db.execute(f"CREATE TABLE partitions ({PARTITION_COLUMNS})")
            db.executemany(statement, rows)
            written.append(db.execute("SELECT * FROM partitions").fetchall())
            db.execute("DROP TABLE partitions")
    assert written[0] == written[1]


def test_nothing_is_plain_that_may_be_another_log_or_reaches_farther() -> None:
    """M2, M3: another epoch, a log that ends or begins earlier; and whatever is remembered beside samples (R2, G3)."""
    one = PartitionMemory(leader_epoch=3, last_epoch=3, log_start=5, created=True)
    one.add_sample(Sample(1_000, 50))
    row, look = values_of(one), PlainLook(0, 3, 5, 60)
    assert looked(row, look, 2_000, created=True) is not None
    for other in (look._replace(leader_epoch=4), look._replace(leader_epoch=2), look._replace(high_watermark=49)):
        assert looked(row, other, 2_000, created=True) is None
    assert looked(row, look._replace(log_start=4), 2_000, created=True) is None
    assert looked(row, look, 2_000, created=False) is None
    changes: list[dict[str, Any]] = [
        {"earlier": one.as_earlier()},
        {"newest": EventMax(5, 70)},
        {"data_at": (70,)},
        {"scan": b"x"},
        {"front": Front(5, append_time=True)},
        {"created_below": 7},
        {"replicas": bytes(32)},
        {"packed": b""},
        {"leader_epoch": None},
    ]
    for change in changes:
        assert looked(values_of(replace(one, **change)), look, 2_000, created=True) is None, change


def test_samples_are_thinned_as_they_are_in_an_object() -> None:
    mine, row = PartitionMemory(), None
    for number in range(3 * SAMPLES_AT_MOST):
        wall_ms = 1_000 * number if number % 7 else 500 * number  # our clock is set back at times
        look = PlainLook(0, 1, 0, number * number)
        add(mine, look, wall_ms, created=True)
        row = looked(row, look, wall_ms, created=True)
        assert row == values_of(mine)


IDS = {"a": "x", "b": "y"}


def rows(folder: Path) -> list[Any]:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as db:
        return db.execute("SELECT * FROM partitions ORDER BY topic_id, partition").fetchall()


def look_at(ledger: Ledger, looks: Sequence[PlainLook], wall_ms: int, *, plainly: bool, topic: str = "a") -> None:
    """Remember looks, at once where that can be; else, and where it can't be, one by one."""
    done: list[int | None] = [None] * len(looks)
    if plainly:
        done = ledger.saw_logs(topic, IDS[topic], looks, wall_ms, created=True)
    for look, epoch in zip(looks, done, strict=True):
        if epoch is None:
            mine = ledger.partition(topic, IDS[topic], look.partition)
            prove(mine, look.leader_epoch, look.log_start, look.high_watermark, {}, wall_ms)
            mine.add_sample(Sample(wall_ms, look.high_watermark))
            mine.saw_stamps(look.high_watermark, append_time=False)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["look", "look", "look", "save", "others", "ask", "begin", "reopen", "fail"]),
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 9)), min_size=1, max_size=4),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_whatever_happens_between_looks_the_file_has_what_it_would_have_without(
    steps: list[tuple[str, list[tuple[int, int, int]]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also where others write meanwhile, a save fails, or somebody asks about a partition in between.

    A save ends a pass, and each pass begins as commands' do: what an object holds from before is of no pass.
    """
    found = []
    for plainly in (True, False):
        folder = tmp_path_factory.mktemp("state") / "c"
        _carry_out(folder, steps, plainly=plainly)
        found.append([row[:2] + row[3:] for row in rows(folder)])
    assert found[0] == found[1]


def _carry_out(folder: Path, steps: list[tuple[str, list[tuple[int, int, int]]]], *, plainly: bool) -> None:
    ledger = Ledger(folder)
    now_ms = 1_000
    with ledger.sparing():
        ledger.begin(IDS)
    saved = False
    for step, some in steps:
        now_ms += 100_000
        if saved and step in ("look", "ask"):
            with ledger.sparing():
                ledger.begin(IDS)
            saved = False
        looks = [
            PlainLook(n, epoch, 0, 10 * epoch + more)
            for n, epoch, more in sorted({one[0]: one for one in some}.values())
        ]
        match step:
            case "look":
                with ledger.sparing():
                    look_at(ledger, looks, now_ms, plainly=plainly)
            case "others":
                with Ledger(folder) as other:
                    other.begin(IDS)
                    look_at(other, looks, now_ms, plainly=False)
                    other.save(now_ms)
            case "ask":
                with ledger.sparing():
                    for look in looks:
                        ledger.partition("a", "x", look.partition).add_newest(
                            EventMax(look.high_watermark, 3), "CreateTime"
                        )
            case "begin":
                with ledger.sparing():
                    ledger.begin(IDS)
            case "reopen":
                ledger.save(now_ms)
                ledger.close()
                ledger = Ledger(folder)
                with ledger.sparing():
                    ledger.begin(IDS)
            case "fail":
                with no_room(ledger), suppress(StateError):  # none where there is nothing to write
                    ledger.save(now_ms)
            case _:
                ledger.save(now_ms)
                saved = True
    ledger.save(now_ms + 100_000)
    ledger.close()


@contextmanager
def no_room(ledger: Ledger) -> Iterator[None]:
    """Have the next write to the file fail at its end, with an error of SQLite's."""
    ledger.db.execute(
        "CREATE TEMP TRIGGER full BEFORE UPDATE ON main.meta BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
    )
    yield
    ledger.db.execute("DROP TRIGGER temp.full")


def test_a_look_that_is_not_saved_yet_is_there_for_who_asks(tmp_path: Path) -> None:
    """And what is added then is added to it, not to what the file had before."""
    with Ledger(tmp_path / "c") as ledger:
        with ledger.sparing():
            ledger.begin(IDS)
            assert ledger.saw_logs("a", "x", [PlainLook(0, 1, 0, 5), PlainLook(1, 1, 0, 6)], 100, created=False) == [
                1,
                1,
            ]
            assert ledger.saw_logs("b", "y", [PlainLook(0, 1, 0, 9)], 100, created=None) == [1]
            assert ledger.partition("a", "x", 0).high_watermark == 5
            ledger.partition("a", "x", 1).saw_stamps(0, append_time=False)
            assert ledger.saw_logs("a", "x", [PlainLook(0, 1, 0, 7)], 200, created=False) == [None]
        assert rows(tmp_path / "c") == []
        assert ledger.save(300) == ["x", "y"]
    with Ledger(tmp_path / "c") as again:
        again.begin(IDS)
        there = [
            (name, number, one.high_watermark, one.created)
            for name, topic_id in IDS.items()
            for number, one in again.partitions_of(topic_id).items()
        ]
        assert there == [("a", 0, 5, False), ("a", 1, 6, True), ("b", 0, 9, False)]
        assert again.topics() == {"x": ("a", 300), "y": ("b", 300)}


def test_what_others_have_written_since_is_merged_with_looks_once_a_pass_begins(tmp_path: Path) -> None:
    """Theirs is of a later leader epoch: a row of ours over it would be of a log that is gone (M2)."""
    with Ledger(tmp_path / "c") as mine, Ledger(tmp_path / "c") as theirs, mine.sparing():
        mine.begin(IDS)
        look_at(mine, [PlainLook(0, 1, 0, 5), PlainLook(1, 1, 0, 6)], 100, plainly=True)
        look_at(theirs, [PlainLook(0, 4, 0, 9)], 200, plainly=False)
        theirs.save(200)
        mine.begin(IDS)
        mine.save(300)
    found = {row[1]: row[3] for row in rows(tmp_path / "c")}
    assert found == {0: 4, 1: 1}


def test_others_are_told_of_looks_where_a_ledger_is_shared(tmp_path: Path) -> None:
    """With state: cluster; else only this machine would know when records were written, and of which log they are."""
    with DocumentLedger(tmp_path / "c") as ledger, ledger.sparing():
        ledger.begin(IDS)
        look_at(ledger, [PlainLook(0, 1, 0, 5)], 100, plainly=True)
        ledger.save(100)
        assert list(SharedCache(ledger.db).unsent()) == [topic_key("x", 0)]


def test_a_look_at_a_topic_that_was_read_is_one_by_one(tmp_path: Path) -> None:
    """Else who asks next about a partition that is new would be given an empty memory, which replaces the look."""
    with Ledger(tmp_path / "c") as ledger, ledger.sparing():
        ledger.begin(IDS)
        ledger.partition("a", "x", 0)
        assert ledger.saw_logs("a", "x", [PlainLook(1, 1, 0, 5)], 100, created=False) == [None]


def test_a_look_twice_before_it_is_saved_is_one_by_one(tmp_path: Path) -> None:
    with Ledger(tmp_path / "c") as ledger, ledger.sparing():
        ledger.begin(IDS)
        assert ledger.saw_logs("a", "x", [PlainLook(0, 1, 0, 5)], 100, created=False) == [1]
        assert ledger.saw_logs("a", "x", [PlainLook(0, 1, 0, 7)], 200, created=False) == [None]
        assert ledger.saw_logs("a", "x", [PlainLook(1, 1, 0, 7)], 200, created=False) == [1]


def test_nothing_is_looked_at_once_others_have_written(tmp_path: Path) -> None:
    """Their look may be the later one: it would seem that the log was cut back to where it ended here (M2)."""
    with Ledger(tmp_path / "c") as mine, Ledger(tmp_path / "c") as theirs, mine.sparing():
        mine.begin(IDS)
        look_at(theirs, [PlainLook(0, 1, 0, 9)], 100, plainly=True)
        theirs.save(100)
        assert mine.saw_logs("a", "x", [PlainLook(0, 1, 0, 9)], 200, created=True) == [None]


def test_what_is_dropped_is_not_written_later(tmp_path: Path) -> None:
    """A look that a prune has dropped with all that was read must not come back with the next look."""
    with Ledger(tmp_path / "c") as ledger, ledger.sparing():
        ledger.begin(IDS)
        look_at(ledger, [PlainLook(0, 1, 0, 5)], 100, plainly=True)
        ledger.prune(0)
        look_at(ledger, [PlainLook(1, 1, 0, 5)], 100, plainly=True)
        ledger.save(100)
    assert [row[:2] for row in rows(tmp_path / "c")] == [("x", 1)]


@pytest.mark.parametrize("damage", ["samples = zeroblob(8)", "log_start = 7", "leader_epoch = 7", "checksum = 7"])
def test_a_damaged_row_is_refused_by_a_look_and_in_columns(tmp_path: Path, damage: str) -> None:
    with Ledger(tmp_path / "c") as ledger:
        ledger.begin(IDS)
        look_at(ledger, [PlainLook(n, 1, 0, 5) for n in range(3)], 100, plainly=True)
        ledger.save(100)
    with Ledger(tmp_path / "c") as ledger, ledger.sparing():
        ledger.begin(IDS)
        with closing(sqlite3.connect(tmp_path / "c" / "ledger.sqlite")) as db, db:
            db.execute("UPDATE partitions SET " + damage + " WHERE partition = 1")  # noqa: S608
        with pytest.raises(StateError, match="partition 1 of topic id x is not what was written"):
            ledger.saw_logs("a", "x", [PlainLook(n, 1, 0, 5) for n in range(3)], 200, created=True)
        with pytest.raises(StateError, match="partition 1 of topic id x is not what was written"):
            list(ledger.stored_rows({"x"}))


@pytest.mark.parametrize("before", [[], ["b"], ["a"]], ids=["first", "of another topic before", "of it before"])
def test_no_room_for_temporary_files_is_no_reason_to_move_the_ledger_away(tmp_path: Path, before: list[str]) -> None:
    """Else the remedy that is told would forget each group that is gone (F6): these looks are one by one, instead."""
    found = []
    many = [PlainLook(number, 1, 0, 5) for number in range(1, 3_000)]
    for name, pages in (("full", 8), ("free", 10_000)):
        with Ledger(tmp_path / name / "c") as ledger, ledger.sparing():
            ledger.begin(IDS)
            for topic in before:
                look_at(ledger, [PlainLook(0, 1, 0, 9)], 100, plainly=True, topic=topic)
            ledger.db.execute(f"PRAGMA temp.max_page_count = {pages}")
            known = ledger.saw_logs("a", "x", many, 200, created=True)
            assert {*known} == ({None} if name == "full" else {1})
            if name == "full":
                look_at(ledger, many, 200, plainly=False)
            ledger.save(300)
        found.append(rows(tmp_path / name / "c"))
    assert found[0] == found[1]
    assert len(found[0]) == len(many) + len(before)
