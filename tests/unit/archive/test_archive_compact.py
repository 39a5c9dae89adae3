"""Compaction of an archive, whatever it is killed at, and groups' positions that are kept with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from retention_cli.archive.catalog import (
    ArchivedPartition,
    SegmentRange,
    compact,
    plan_compaction,
    read_catalog,
    unlisted,
    verify_catalog,
)
from retention_cli.archive.layout import ArchiveError, DamagedError, Manifest, Source, checksum_of, manifest_text
from retention_cli.archive.positions import (
    Behind,
    Continuation,
    Positions,
    Stood,
    gap_at,
    keep,
    left_behind,
    newest,
    until,
)
from retention_cli.archive.restore import Job, RestoreRefusedError, Wanted, WantedGroups
from retention_cli.archive.restore_groups import GroupPlan, check_free, choose, mapped
from retention_cli.archive.segment import DEFAULT_SIZE, SegmentSize, records_of
from retention_cli.archive.store import Store
from retention_cli.brokers.commits import CommitsUnknown
from retention_cli.brokers.log_offsets import Found, NotFound
from retention_cli.brokers.records import Range, Record
from retention_cli.core.consumers import key_of
from retention_cli.core.model import PartitionFacts, TopicFacts, TopicPartition, Unknown
from retention_cli.observe.floors.fold import CommitRow
from retention_cli.observe.lineage import Cut, EpochEnds
from retention_cli.observe.request import Observation
from retention_cli.trim.recheck import positions_of
from tests.support.archives import AT, DAY, SOURCE, cut, flipped, republished, written
from tests.support.says import refusal, says


def log(start: int, end: int, epoch: int | None = 0, mark: str = "v") -> list[Record]:
    return [
        Record(n, epoch, n * DAY // 4, "CreateTime", b"k%d" % n, f"{mark}{n}".encode(), ()) for n in range(start, end)
    ]


def segments(store: Store, *spans: tuple[int, int, int]) -> list[Manifest]:
    return [written(store, log(start, end, epoch), start, end, leader_epoch=epoch) for start, end, epoch in spans]


def catalog(store: Store) -> ArchivedPartition:
    [one], loose = read_catalog(store)
    assert loose == []
    return one


def content(store: Store) -> list[Record]:
    return republished(store, read_catalog(store)[0][0])


def files(store: Store) -> dict[str, bytes]:
    return {path: store.read(path) for path in store.files()}


def marks(store: Store) -> list[tuple[int, int]]:
    [joined] = catalog(store).segments
    return sorted(set(joined.marks))


def compacted(store: Store, through: Store | None = None, size: SegmentSize = DEFAULT_SIZE) -> list[str]:
    one = read_catalog(store)[0][0]
    return compact(through or store, one, plan_compaction(one.segments, size), lambda: AT).problems


def run(store: Store, size: SegmentSize = DEFAULT_SIZE) -> list[str]:
    problems = compacted(store, size=size)
    again = catalog(store)
    verify_catalog(store, [again])
    assert again.problems == [] or problems
    return problems


def spans(found: Sequence[Manifest]) -> list[tuple[int, int]]:
    return sorted((one.start, one.end) for one in found)


def test_compaction_joins_small_segments_with_equal_records(store: Store) -> None:
    parts = segments(store, (0, 10, 0), (10, 25, 0), (25, 30, 1))
    before = content(store)
    assert run(store) == []
    [joined] = catalog(store).segments
    assert (joined.start, joined.end, joined.records, len(joined.files), len(store.files())) == (0, 30, 30, 1, 2)
    assert content(store) == before == log(0, 25) + log(25, 30, 1)
    assert [part.checksum for part in joined.parts] == [checksum_of(one) for one in parts]
    assert (run(store), catalog(store).segments) == ([], [joined]), "there is nothing more to do"


def test_segment_deleted_by_another_compaction_is_no_error(store: Store) -> None:
    """Both found what a killed one left over."""
    segments(store, (0, 10, 0), (10, 20, 0))
    before = files(store)
    run(store)
    for path, text in before.items():
        store.write(path, text)
    one = catalog(store)
    work = plan_compaction(one.segments)
    assert len(work.leftovers) == 2
    assert [compact(store, one, work, lambda: AT).problems for _ in range(2)] == [[], []]
    assert (content(store), len(store.files())) == (log(0, 20), 2)


def test_joined_segment_keeps_the_epoch_marks_of_every_part(store: Store) -> None:
    """A joined segment is of a log only where that has each of its parts (M1)."""
    written(store, log(0, 8, 1), 0, 10, leader_epoch=2)
    written(store, [], 10, 14, leader_epoch=2)
    written(store, log(14, 20, 4), 14, 20, leader_epoch=5)
    run(store)
    assert marks(store) == [(7, 1), (13, 2), (19, 4), (19, 5)]
    written(store, log(20, 22, 6), 20, 22, leader_epoch=6)
    run(store)
    assert marks(store) == [(7, 1), (13, 2), (19, 4), (19, 5), (21, 6)], "joined once more"


@pytest.mark.parametrize(
    "made",
    [
        pytest.param([(0, 10, 0), (12, 20, 0)], id="a gap"),
        pytest.param([(0, 10, 0), (5, 20, 0)], id="overlapping"),
        pytest.param([(0, 20, 0), (5, 10, 0), (20, 25, 0)], id="one within another"),
        pytest.param([(0, 10, 3), (10, 20, 2)], id="an epoch that falls: another log"),
        pytest.param([(0, 10, 0)], id="one alone"),
    ],
)
def test_compaction_leaves_segments_with_gaps_or_overlaps_apart(store: Store, made: list[tuple[int, int, int]]) -> None:
    segments(store, *made)
    before = files(store)
    assert (run(store), files(store)) == ([], before)
    assert spans(catalog(store).segments) == sorted((start, end) for start, end, _epoch in made)


def test_compaction_keeps_segment_sizes_within_the_limits(store: Store) -> None:
    """A segment that is half full stays, and none gets larger than what a trim writes."""
    segments(store, *((at, at + 4, 0) for at in range(0, 40, 4)), (40, 52, 0), (52, 55, 0), (55, 58, 0))
    run(store, SegmentSize(records=20))
    assert spans(catalog(store).segments) == [(0, 20), (20, 40), (40, 52), (52, 58)]


@pytest.mark.parametrize("harm", [Path.unlink, flipped, cut])
def test_damaged_part_keeps_its_run_and_other_runs_are_joined(
    store: Store, tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    parts = segments(store, (0, 10, 0), (10, 20, 0), (30, 40, 0), (40, 50, 0))
    path = tmp_path / SOURCE.folder / parts[1].files[0].path
    harm(path)
    [problem] = compacted(store)
    says(problem, path.name, "other files there are unchanged")
    assert spans(read_catalog(store)[0][0].segments) == [(0, 10), (10, 20), (30, 50)]
    assert list(records_of(store, parts[0])) == log(0, 10)


class Killed(BaseException):
    """The process is gone."""


class Dying(Store):
    """A store whose process is killed before its ``last``-th change."""

    def __init__(self, url: str, last: int) -> None:
        super().__init__(url)
        self.last = last

    def _count(self) -> None:
        if self.last == 0:
            raise Killed
        self.last -= 1

    def write(self, path: str, content: object) -> None:
        self._count()
        super().write(path, content)

    def delete(self, path: str) -> None:
        self._count()
        super().delete(path)


@pytest.mark.parametrize("step", range(9))
def test_compaction_killed_at_any_step_loses_nothing_and_the_next_finishes(
    store: Store, tmp_path: Path, step: int
) -> None:
    segments(store, (0, 10, 0), (10, 20, 1), (20, 30, 1))
    before = content(store)
    try:
        compacted(store, Dying(str(tmp_path), step))
        assert step == 8
    except Killed:
        assert step < 8
    assert content(store) == before
    assert compacted(store) == []
    assert (content(store), spans(catalog(store).segments), len(store.files())) == (before, [(0, 30)], 2)


def test_parts_stay_while_the_joined_segment_is_damaged(store: Store, tmp_path: Path) -> None:
    segments(store, (0, 10, 0), (10, 20, 0))
    with pytest.raises(Killed):
        compacted(store, Dying(str(tmp_path), 2))
    [joined] = [one for one in catalog(store).segments if one.parts]
    (tmp_path / SOURCE.folder / joined.files[0].path).unlink()
    assert len(compacted(store)) == 2
    assert spans(catalog(store).segments) == [(0, 10), (0, 20), (10, 20)]


def test_overlapping_segment_with_other_records_is_not_joined(store: Store) -> None:
    """What was archived again of a replaced log has other records: a part is what its checksum says."""
    segments(store, (0, 10, 0), (10, 20, 0))
    run(store)
    written(store, log(10, 20, 0, "another"), 10, 20)
    assert plan_compaction(catalog(store).segments).leftovers == ()
    run(store)
    assert spans(catalog(store).segments) == [(0, 20), (10, 20)]


@pytest.mark.parametrize("when", ["before its file goes", "once both are joined", "before its manifest goes"])
def test_segment_archived_again_during_compaction_is_kept(store: Store, tmp_path: Path, when: str) -> None:
    """A trim writes a part again, of a log that was replaced, just as the old one is deleted: the same names."""
    segments(store, (0, 10, 0), (10, 20, 0))

    class Raced(Store):
        raced = False

        def _race(self) -> None:
            if not self.raced:
                self.raced = True
                written(Store(str(tmp_path)), log(0, 10, 5, "another"), 0, 10, leader_epoch=5)

        def write(self, path: str, content: Any) -> None:
            super().write(path, content)
            if when == "once both are joined" and path.endswith(".json"):
                self._race()

        def delete(self, path: str) -> None:
            super().delete(path)
            self._race()

    one = catalog(store)
    if when == "before its file goes":  # after it was planned, and the records are read then
        written(store, log(0, 10, 5, "another"), 0, 10, leader_epoch=5)
    done = compact(Raced(str(tmp_path)), one, plan_compaction(one.segments), lambda: AT)
    if when == "before its file goes":
        assert len(done.problems) == 1, "its files are not those that were planned"
    kept = next(one for one in read_catalog(store)[0][0].segments if (one.start, one.end) == (0, 10))
    assert list(records_of(store, kept)) == log(0, 10, 5, "another")


def test_manifest_cannot_have_another_segments_file_deleted(store: Store) -> None:
    first, second = segments(store, (0, 10, 0), (10, 20, 0))
    third = written(store, log(30, 40), 30, 40)
    # A manifest of no records of its own that claims the third's file: its records do not belong there.
    store.write(second.path, manifest_text(replace(second, files=third.files)).encode())
    one = read_catalog(store)[0][0]
    assert len(one.problems) == 1, "its manifest counts as damaged"
    compact(store, one, plan_compaction(one.segments), lambda: AT)
    assert [list(records_of(store, one)) for one in (first, third)] == [log(0, 10), log(30, 40)]


layouts = st.dictionaries(
    st.tuples(st.integers(0, 12), st.integers(1, 5)), st.integers(0, 2), min_size=1, max_size=6
).map(lambda found: [(start, start + length, epoch) for (start, length), epoch in found.items()])


@given(layouts, st.integers(2, 30))
def test_compaction_of_any_segments_keeps_every_record(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[int, int, int]], records: int
) -> None:
    store = Store(str(tmp_path_factory.mktemp("archive")))
    segments(store, *made)
    before = catalog(store).segments
    offsets = {one.offset for part in before for one in records_of(store, part)}
    assert run(store, SegmentSize(records=records)) == []
    after = catalog(store).segments
    assert {one.offset for part in after for one in records_of(store, part)} == offsets
    assert len(after) <= len(before)
    assert all(one.records <= max(records, 5) for one in after)


def test_segment_that_the_audit_log_tells_of_is_named_if_no_manifest_has_it(store: Store, tmp_path: Path) -> None:
    told = [one.path for one in segments(store, (0, 10, 0), (10, 20, 0), (20, 30, 1))]
    run(store)  # one manifest has what three had

    def problems(topics: Sequence[str] = ()) -> list[str]:
        found, _loose = read_catalog(store)
        unlisted(found, told, topics)
        return [text for one in found for text in one.problems]

    assert problems() == []
    (manifest,) = tmp_path.rglob("*.json")
    manifest.unlink()
    assert problems() == [f"{path} is missing: by the audit log it was written" for path in told]
    assert problems(["other"]) == []
    segments(store, (0, 10, 0), (20, 30, 1))
    assert problems() == [f"{told[1]} is missing: by the audit log it was written"]


ORIGIN = Source("C", "orders", "I", 0)
records = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 1), st.booleans()), max_size=20
)  # the step to the next offset, the step of its leader epoch, and whether it was restored


def at(read_ms: int, *consumers: Stood) -> Positions:
    return Positions("C", "orders", "I", read_ms, (4, None), (0, None), consumers, None)


@example([(1, 0, True)] * 9, set(range(12)), None, 3)
@example([(2, 0, True), (1, 0, False)] * 5, set(range(17)), 0, 0)
@example([(2, 0, True)] * 3 + [(1, 1, True)] * 4, set(range(17)), 0, 1)
@given(records, st.sets(st.integers(0, 30), min_size=1), st.none() | st.integers(0, 9), st.integers(0, 9))
def test_position_continues_with_the_first_restored_record_that_may_be_unread(
    steps: list[tuple[int, int, bool]], positions: set[int], epoch: int | None, start: int
) -> None:
    """Not one that may be unread is skipped, and none before it is read again; whatever was left out."""
    log, offset, term, place = [], -1, 0, start
    for step, newer, restored in steps:
        offset, term = offset + step, term + newer
        if restored:
            place += step  # markers are in between
            log.append((offset, term, place))
    found = Continuation(positions, epoch, start)
    for one in log:
        found.add(*one)
    for position, new in found.ended().items():
        unread = [place for offset, term, place in log if offset >= position or (epoch is not None and term > epoch)]
        assert new == (unread[0] if unread else log[-1][2] + 1 if log else start)


@pytest.mark.parametrize(
    ("position", "covered", "gap"),
    [
        (5, [(0, 10)], False),
        (10, [(0, 10)], False),  # behind all of it
        (12, [(0, 10), (15, 20)], True),
        (0, [(3, 10)], True),
        (3, [], False),
    ],
)
def test_gap_is_told_from_the_end(position: int, covered: list[tuple[int, int]], gap: bool) -> None:
    assert gap_at(position, covered) is gap


ABSENT, UNNAMED = "absent", "absent, and not all groups are named"


@pytest.mark.parametrize(
    ("runs", "covered", "found"),
    [  # of each run: the log start, and the position of group g
        pytest.param([(0, 3), (10, 15)], [(0, 15)], 3, id="it started over behind what was trimmed"),
        pytest.param([(0, 10), (10, 15)], [(0, 15)], None, id="it had read what was trimmed"),
        pytest.param([(0, 3), (3, 15)], [(0, 15)], None, id="only what it had read was trimmed"),
        pytest.param([(0, 3), (10, 3), (10, 15)], [(0, 15)], 3, id="it stood still for a run"),
        pytest.param([(0, 3), (10, ABSENT), (20, 25)], [(0, 25)], 3, id="it was gone for a run"),
        pytest.param([(0, 3), (10, None), (20, 25)], [(0, 25)], 3, id="its position did not count for a run"),
        pytest.param([(0, 9), (2, None), (8, 8)], [(0, 8)], 2, id="it may have gone back: its position did not count"),
        pytest.param([(0, 9), (2, UNNAMED), (8, 8)], [(0, 8)], 2, id="it may have gone back while it was not named"),
        pytest.param([(0, 3), (None, 12), (20, 25)], [(0, 25)], 3, id="the log start was unknown for a run"),
        pytest.param([(0, 3), (10, 15), (15, 17), (30, 40)], [(0, 40)], 3, id="twice: the earlier one counts"),
        pytest.param([(0, 30), (35, 3), (35, 40)], [(0, 40)], 3, id="twice: the earlier offset counts"),
        pytest.param([(5, None), (10, 15)], [(0, 15)], 5, id="it had no position: all from the log start on"),
        pytest.param([(5, None), (5, 15)], [(0, 15)], None, id="it had none, and nothing was trimmed"),
        pytest.param([(0, ABSENT), (10, 15)], [(0, 15)], None, id="it did not exist yet"),
        pytest.param([(0, 3), (10, 15)], [(0, 3), (10, 15)], None, id="brokers deleted it: it is not archived"),
        pytest.param([(0, 3), (10, 15)], [(7, 8)], 3, id="some of it is archived"),
        pytest.param([(0, 3)], [(0, 15)], None, id="one run"),
        pytest.param([(5, UNNAMED), (10, 15)], [(0, 15)], 5, id="it may have existed: not all groups were named"),
        pytest.param([(5, UNNAMED), (5, 7), (7, 9)], [(0, 15)], None, id="it may have, and had read what was trimmed"),
    ],
)
def test_group_is_behind_where_archived_records_were_trimmed_that_it_had_not_read(
    runs: list[tuple[int | None, Any]], covered: list[tuple[int, int]], found: int | None
) -> None:
    """Not on another partition, nor another group, nor what is no group. Only one that was there, or may have been."""
    files = [
        Positions(
            *("C", "orders", "I", n * DAY, (n, n), (start, 0)),
            (
                *(() if isinstance(at, str) else (Stood("g", "group", {0: at, 1: 0}),)),
                Stood("h", "group", {0: 99, 1: 0}),
                Stood("g", "outside", {0: 99, 1: 0}),
            ),
            "why" if at == UNNAMED else None,
        )
        for n, (start, at) in enumerate(runs)
    ]
    stood = [start if at in (None, UNNAMED) else at for start, at in runs]
    epoch = None if found is None else stood.index(found)
    assert left_behind(files, {0: covered}) == ({} if found is None else {("g", 0): Behind(found, epoch)})


def test_positions_come_back_and_the_newest_of_a_time_counts(store: Store) -> None:
    kept = [at(n * DAY, Stood("billing", "group", {0: n, 1: None}), Stood("é", "share", {}, "why")) for n in (1, 2, 3)]
    for one in kept:
        keep(store, one)
    assert newest(store, ORIGIN) == kept[2]
    assert [newest(store, ORIGIN, time) for time in (3 * DAY - 1, 2 * DAY)] == [kept[1]] * 2
    assert [[*until(store, ORIGIN, time)] for time in (3 * DAY, 3 * DAY - 1)] == [kept, kept[:2]]
    said = refusal(ArchiveError, newest, store, ORIGIN, DAY - 1)
    says(said, "the first are of 1970-01-02T00:00:00.000Z: name the time ", "--positions-at")


@pytest.mark.parametrize(
    "change", [lambda text: text.replace("billing", "billinh"), lambda text: text[:-9], lambda _: "[]"]
)
def test_damaged_positions_are_refused(store: Store, change: Callable[[str], str]) -> None:
    assert "an older kretain wrote this archive" in refusal(ArchiveError, newest, store, ORIGIN), "there are none yet"
    one = at(DAY, Stood("billing", "group", {0: 7}))
    keep(store, one)
    store.write(one.path, change(store.read(one.path).decode()).encode())
    assert "is damaged" in refusal(DamagedError, newest, store, ORIGIN)


def observed(*rows: CommitRow, end: int | Unknown = 100, cut: Cut | None = None) -> Observation:
    """One partition in leader epoch 5, whose epoch 3 ended at 40; epoch 2 is unknown to its leader."""
    tp = TopicPartition("orders", 0)
    facts = PartitionFacts(
        TopicFacts("orders", "I", False, frozenset({"delete"}), -1), 0, 0, end, end, Unknown(()), leader_epoch=5
    )
    ends: EpochEnds = {(tp, 3): Found(40, None), (tp, 2): NotFound()}
    return Observation(
        "C",
        0.0,
        {tp: facts},
        {},
        {},
        epoch_ends=ends,
        cuts={} if cut is None else {tp: cut},
        rows=rows,
        ends_read_ms=DAY,
    )


@pytest.mark.parametrize(
    ("kind", "offset", "epoch", "log", "kept"),
    [
        ("commit", 50, 5, {}, 50),
        ("commit", 50, None, {}, 50),
        ("commit", 50, None, {"cut": Cut(60, 4)}, None),  # a bare commit may be of what was cut off
        ("commit", 50, None, {"end": Unknown(())}, None),
        ("commit", 40, 3, {}, 40),
        ("commit", 41, 3, {}, None),  # F5: beyond the end of its epoch
        ("commit", 10, 2, {}, None),
        ("commit", 10, 6, {}, None),
        ("commit", 101, None, {}, None),  # beyond H
        ("refused", 10, None, {}, None),
        ("missing", None, None, {}, None),
        ("gone", 50, 3, {}, 40),  # F6: it counts at the end of its epoch
        ("gone", 50, None, {}, None),
    ],
)
def test_only_positions_that_count_in_this_log_are_kept(kind, offset, epoch, log, kept) -> None:
    found = positions_of(observed(CommitRow("g", "orders", 0, kind, offset, epoch), **log), {"g": "group"})
    assert ([one.offsets for one in found["orders"].consumers], found["orders"].epochs) == ([{0: kept}], (5,))
    assert found["orders"].starts == (0,)


def test_consumers_are_kept_by_kind_and_what_is_unreadable_is_said() -> None:
    rows = [
        CommitRow("a", "orders", 0, "commit", 1, 5),
        CommitRow("s", "orders", 0, "commit", 1, 5),
        CommitRow("was", "orders", 0, "gone", 1, 5),
        CommitRow(key_of("share", "q"), "orders", 0, "commit", 1, 5),
        CommitRow(key_of("file", "f"), "orders", 0, "commit", 1, 5),
        CommitRow("odd", None, None, "failed", code="F3", text="group odd could not be read"),
        CommitRow("", None, None, "failed", code="F8", text="not every group is listed"),
    ]
    found = positions_of(observed(*rows), {"a": "group", "s": "streams", "odd": "group"})["orders"]
    assert {one.name: one.kind for one in found.consumers} == {
        "a": "group", "s": "streams", "was": "gone", "share:q": "share", "file:f": "outside", "odd": "group"
    }  # fmt: skip
    assert [one.name for one in found.consumers if one.unreadable] == ["odd"]
    assert found.unlisted == "not every group is listed"


def no_groups(**more: Any) -> Any:
    """A reader of a cluster whose one broker lists no group."""
    return SimpleNamespace(brokers=lambda: [1], list_groups=lambda _brokers: [], **more)


def test_position_that_does_not_count_is_named_before_anything_is_restored(store: Store) -> None:
    keep(store, at(DAY, Stood("billing", "group", {0: 7, 1: None})))
    wanted = Wanted("orders", "restored", groups=WantedGroups(overwrite=True))
    job = Job(wanted, ORIGIN, "T", {}, {0: 0, 1: 0, 2: 0}, "ours", resumes=False)
    rows = choose(no_groups(), store, job, WantedGroups()).rows
    assert [(row.archived, row.note[:11]) for row in rows] == [(7, ""), (None, "no position"), (None, "no position")]


def test_group_continues_at_an_earlier_position_if_a_trim_has_passed_it(store: Store) -> None:
    """Not if it went back by itself, nor after the time that was asked for; its rows show where, and why."""
    stands = (("g", 3, 15), ("h", 12, 15), ("back", 7, 5))
    for day, start in enumerate((0, 10, 20), 1):
        stood = tuple(Stood(name, "group", {0: both[min(day, 2) - 1]}) for name, *both in stands)
        keep(store, replace(at(day * DAY, *stood), starts=(start, 0)))
    segment = SegmentRange(Manifest(ORIGIN, 0, 15, 1, "", 4), 0, 15)
    job = Job(Wanted("orders", "restored"), ORIGIN, "T", {0: [segment]}, {0: 0}, "ours", resumes=False)
    for day, archived in ((1, [3, 12, 7]), (2, [3, 15, 5]), (3, [3, 15, 5])):
        plan = choose(no_groups(), store, job, WantedGroups(overwrite=True, at_ms=day * DAY))
        assert [row.archived for row in plan.rows] == archived
        assert [row.note[:12] for row in plan.rows] == ["a trim delet" if day > 1 else "", "", ""]
        assert plan.behind.get(("g", 0)) == (Behind(3, 4) if day > 1 else None)


def test_earlier_position_is_in_the_log_of_then(store: Store) -> None:
    """M1: at 30 when epoch 4 was lost from 3 on. What epoch 5 wrote below 30 is unread, and later positions hide it."""
    ranges = [SegmentRange(one, one.start, one.end) for one in segments(store, (0, 3, 4), (3, 40, 5))]
    records = [record for one in ranges for record in records_of(store, one.manifest, one.start)]
    for day, epoch, start, position in ((1, 4, 0, 30), (2, 5, 40, 50)):
        epochs, starts = ((None, None, None, one) for one in (epoch, start))
        stood = (Stood("g", "group", {3: position}), Stood("h", "group", {3: 35}))
        keep(store, Positions(SOURCE.cluster_id, SOURCE.topic, SOURCE.topic_id, day * DAY, epochs, starts, stood))

    def read_complete(_tp: object, span: Range, take: Callable[[Record], None]) -> int:
        for one in records:
            take(one)
        return span.end

    reader = no_groups(
        metadata=lambda _names: SimpleNamespace(topics={"restored": SimpleNamespace(partitions={3: None})}),
        extents=lambda place, _isolation: dict.fromkeys(place, Range(0, 40)),
        read_complete=read_complete,
    )
    wanted = Wanted(SOURCE.topic, "restored", partitions=(3,))
    job = Job(wanted, SOURCE, "T", {3: ranges}, {3: 0}, "ours", resumes=False)
    rows = mapped(reader, store, job, choose(reader, store, job, WantedGroups())).rows
    assert [(row.group, row.archived, row.offset, "a log that was lost" in row.note) for row in rows] == [
        *(("g", 30, 3, True), ("h", 35, 3, True))
    ]


def test_group_that_no_broker_lists_may_have_commits_on_the_target() -> None:
    """Its coordinator is away while kretain lists groups (F9), and back when it commits: it would skip what is unread."""

    def read_commits(names: list[str], on_group: Callable[[CommitsUnknown], None]) -> None:
        for name in names:
            on_group(CommitsUnknown(name, "its coordinator is away", None))

    job = Job(Wanted("orders", "restored", groups=WantedGroups()), ORIGIN, "T", {}, {0: 0}, "ours", resumes=False)
    plan = GroupPlan(at(DAY), (Stood("billing", "group", {0: 7}),), {})
    said = refusal(RestoreRefusedError, check_free, no_groups(read_commits=read_commits), job, plan)
    assert "billing can't be checked for commits: its coordinator is away" in said
