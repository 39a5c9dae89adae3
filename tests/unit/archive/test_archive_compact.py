"""Compaction of an archive: fewer files, the same records, whatever it is killed at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from retention_cli.archive.catalog import (
    ArchivedPartition,
    compact,
    plan_compaction,
    read_catalog,
    stitched,
    unlisted,
    verify_catalog,
)
from retention_cli.archive.layout import Manifest, Source, checksum_of, manifest_text
from retention_cli.archive.segment import DEFAULT_SIZE, SegmentBuilder, SegmentSize, commit, records_of
from retention_cli.archive.store import Store
from retention_cli.brokers.records import Record

SOURCE = Source("C", "orders", "id", 3)
AT = "2026-11-24T03:00:00.000Z"
DAY = 86_400_000


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def log(start: int, end: int, epoch: int | None = 0, mark: str = "v") -> list[Record]:
    return [
        Record(n, epoch, n * DAY // 4, "CreateTime", b"k%d" % n, f"{mark}{n}".encode(), ()) for n in range(start, end)
    ]


def write(store: Store, records: Sequence[Record], start: int, end: int, leader_epoch: int = 0) -> Manifest:
    building = SegmentBuilder(SOURCE, start)
    for record in records:
        building.add(record)
    manifest = building.write(store, end, 4, AT, leader_epoch)
    commit(store, manifest)
    return manifest


def segments(store: Store, *spans: tuple[int, int, int]) -> list[Manifest]:
    return [write(store, log(start, end, epoch), start, end, epoch) for start, end, epoch in spans]


def catalog(store: Store) -> ArchivedPartition:
    [one], loose = read_catalog(store)
    assert loose == []
    return one


def content(store: Store) -> list[Record]:
    """What a restore would republish. There are no gaps between segments."""
    pieces, gaps = stitched(read_catalog(store)[0][0].segments)
    assert gaps == []
    return [
        record
        for piece in pieces
        for record in records_of(store, piece.manifest, piece.start)
        if record.offset < piece.end
    ]


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
    assert (joined.start, joined.end, joined.records, len(joined.files)) == (0, 30, 30, 1)
    assert content(store) == before == log(0, 25) + log(25, 30, 1)
    assert [part.checksum for part in joined.parts] == [checksum_of(one) for one in parts]
    assert len(store.files()) == 2
    assert run(store) == []  # there is nothing more to do
    assert catalog(store).segments == [joined]


def test_segment_deleted_by_another_compaction_is_no_error(store: Store) -> None:
    """Both found what a killed one left over."""
    segments(store, (0, 10, 0), (10, 20, 0))
    before = {path: store.read(path) for path in store.files()}
    run(store)
    for path, text in before.items():
        store.write(path, text)
    one = catalog(store)
    work = plan_compaction(one.segments)
    assert len(work.leftovers) == 2
    for _ in range(2):
        assert compact(store, one, work, lambda: AT).problems == []
    assert content(store) == log(0, 20)
    assert len(store.files()) == 2


def test_joined_segment_keeps_the_epoch_marks_of_every_part(store: Store) -> None:
    """A joined segment is of a log only where that has each of its parts (M1)."""
    write(store, log(0, 8, 1), 0, 10, 2)
    write(store, [], 10, 14, 2)
    write(store, log(14, 20, 4), 14, 20, 5)
    run(store)
    [joined] = catalog(store).segments
    assert sorted(set(joined.marks)) == [(7, 1), (13, 2), (19, 4), (19, 5)]
    write(store, log(20, 22, 6), 20, 22, 6)  # and joined once more
    run(store)
    [joined] = catalog(store).segments
    assert sorted(set(joined.marks)) == [(7, 1), (13, 2), (19, 4), (19, 5), (21, 6)]


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        ([(0, 10, 0), (12, 20, 0)], "a gap"),
        ([(0, 10, 0), (5, 20, 0)], "overlapping"),
        ([(0, 20, 0), (5, 10, 0), (20, 25, 0)], "one within another"),
        ([(0, 10, 3), (10, 20, 2)], "an epoch that falls: another log"),
        ([(0, 10, 0)], "one alone"),
    ],
)
def test_compaction_leaves_segments_with_gaps_or_overlaps_apart(
    store: Store, made: list[tuple[int, int, int]], kept: str
) -> None:
    segments(store, *made)
    if kept == "one within another":
        made = [*made[:2], (20, 25, 0)]
    before = {path: store.read(path) for path in store.files()}
    assert run(store) == []
    assert {path: store.read(path) for path in store.files()} == before
    assert spans(catalog(store).segments) == sorted((start, end) for start, end, _epoch in made)


def test_compaction_keeps_segment_sizes_within_the_limits(store: Store) -> None:
    """A segment that is half full stays, and none gets larger than what a trim writes."""
    segments(store, *((at, at + 4, 0) for at in range(0, 40, 4)), (40, 52, 0), (52, 55, 0), (55, 58, 0))
    run(store, SegmentSize(records=20))
    assert spans(catalog(store).segments) == [(0, 20), (20, 40), (40, 52), (52, 58)]


@pytest.mark.parametrize("harm", ["gone", "flipped", "cut"])
def test_damaged_part_keeps_its_run_and_other_runs_are_joined(store: Store, tmp_path: Path, harm: str) -> None:
    parts = segments(store, (0, 10, 0), (10, 20, 0), (30, 40, 0), (40, 50, 0))
    path = tmp_path / SOURCE.folder / parts[1].files[0].path
    whole = path.read_bytes()
    match harm:
        case "gone":
            path.unlink()
        case "flipped":
            path.write_bytes(whole[: len(whole) // 3] + bytes(20) + whole[len(whole) // 3 + 20 :])
        case "cut":
            path.write_bytes(whole[:-1])
    [problem] = compacted(store)
    assert str(path.name) in problem
    assert "other files there are unchanged" in problem
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
    assert content(store) == before
    assert spans(catalog(store).segments) == [(0, 30)]
    assert len(store.files()) == 2


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
    write(store, log(10, 20, 0, "another"), 10, 20, 0)
    assert plan_compaction(catalog(store).segments).leftovers == ()
    run(store)
    assert spans(catalog(store).segments) == [(0, 20), (10, 20)]


@pytest.mark.parametrize("when", ["before its file goes", "before its manifest goes"])
def test_segment_archived_again_during_compaction_is_kept(store: Store, tmp_path: Path, when: str) -> None:
    """A trim writes a part again, of a log that was replaced, just as the old one is deleted: the same names."""
    segments(store, (0, 10, 0), (10, 20, 0))

    class Raced(Store):
        raced = False

        def delete(self, path: str) -> None:
            super().delete(path)
            if not self.raced:
                self.raced = True
                write(Store(str(tmp_path)), log(0, 10, 5, "another"), 0, 10, 5)

    racing = Raced(str(tmp_path))
    one = catalog(store)
    if when == "before its file goes":
        write(store, log(0, 10, 5, "another"), 0, 10, 5)  # after it was planned, and the records are read then
        done = compact(racing, one, plan_compaction(one.segments), lambda: AT)
        assert len(done.problems) == 1, "its files are not those that were planned"
    else:
        compact(racing, one, plan_compaction(one.segments), lambda: AT)
    kept = next(one for one in read_catalog(store)[0][0].segments if (one.start, one.end) == (0, 10))
    assert list(records_of(store, kept)) == log(0, 10, 5, "another")


def test_manifest_cannot_have_another_segments_file_deleted(store: Store) -> None:
    first, second = segments(store, (0, 10, 0), (10, 20, 0))
    third = write(store, log(30, 40), 30, 40)
    # A manifest of no records of its own that claims the third's file: its records do not belong there.
    store.write(second.path, manifest_text(replace(second, files=third.files)).encode())
    one = read_catalog(store)[0][0]
    assert len(one.problems) == 1, "its manifest counts as damaged"
    compact(store, one, plan_compaction(one.segments), lambda: AT)
    assert list(records_of(store, third)) == log(30, 40)
    assert list(records_of(store, first)) == log(0, 10)


@st.composite
def layouts(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    found = draw(
        st.lists(
            st.tuples(st.integers(0, 12), st.integers(1, 5), st.integers(0, 2)), max_size=6, unique_by=lambda x: x[:2]
        )
    )
    return [(start, start + length, epoch) for start, length, epoch in found]


@given(layouts(), st.integers(2, 30))
def test_compaction_of_any_segments_keeps_every_record(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[int, int, int]], records: int
) -> None:
    store = Store(str(tmp_path_factory.mktemp("archive")))
    if not made:
        return
    segments(store, *made)
    offsets = {one.offset for part in catalog(store).segments for one in records_of(store, part)}
    count = len(catalog(store).segments)
    assert run(store, SegmentSize(records=records)) == []
    after = catalog(store)
    assert {one.offset for part in after.segments for one in records_of(store, part)} == offsets
    assert len(after.segments) <= count
    assert all(one.records <= max(records, 5) for one in after.segments)


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
