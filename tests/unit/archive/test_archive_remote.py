"""What tasks say that they archived is compared with what is seen from here; and many may write the same at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest
from hypothesis import given, strategies as st

from retention_cli.archive.layout import ArchiveError, Manifest, Source
from retention_cli.archive.store import Store
from retention_cli.archive.writer import Archived
from retention_cli.engines.spark.archiver import (
    RECORDS_A_TASK,
    TASKS_A_LEADER,
    ArchiveRequest,
    NotingStore,
    RemoteReport,
    check_report,
    sliced,
)
from tests.support.archives import SOURCE, sample, written
from tests.support.refusals import refusal


def segments(store: Store, *spans: tuple[int, int]) -> list[Manifest]:
    return [written(store, sample()[start:end], start, end) for start, end in spans]


def said(folder: Path, *spans: tuple[int, int], start: int = 0) -> RemoteReport:
    """What a task says of segments that it wrote through a store of its own."""
    store = NotingStore(str(folder))
    done = Archived(SOURCE, str(folder), start, 30, tuple(segments(store, *spans)))
    return RemoteReport.from_json(store.report(done).as_json())


def file_of(folder: Path, what: str) -> Path:
    return max(folder.rglob(what))


def missing(what: str) -> Callable[[Path], None]:
    return lambda folder: file_of(folder, what).unlink()


def cut(folder: Path) -> None:
    path = file_of(folder, "*.parquet")
    path.write_bytes(path.read_bytes()[:-1])


def flipped(folder: Path) -> None:
    path = file_of(folder, "*.parquet")
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)


def other_records(folder: Path) -> None:
    """A segment of the same place that is whole, and has a record less."""
    written(Store(str(folder)), sample()[12:-1], 12, 30)


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (missing("*.json"), "No such file"),
        (missing("*.parquet"), "No such file"),
        (cut, "bytes, its manifest says"),
        (flipped, "CRC checksum|damaged|can't be read"),
        (other_records, "differs from what was written"),
        (lambda folder: folder.rename(folder.with_name("gone")), "No such file"),
    ],
)
def test_segment_that_differs_from_the_report_is_rejected(
    tmp_path: Path, harm: Callable[[Path], None], why: str
) -> None:
    folder = tmp_path / "archive"
    word = said(folder, (0, 12), (12, 30))
    harm(folder)
    with pytest.raises(ArchiveError, match=why):
        check_report(Store(str(folder)), SOURCE, 30, word)


def test_rewritten_segment_is_accepted_after_it_was_read(tmp_path: Path) -> None:
    word = said(tmp_path, (0, 30))
    segment_ = replace(word.segments[0], files=dict.fromkeys(word.segments[0].files, "0" * 64))
    assert check_report(Store(str(tmp_path)), SOURCE, 30, replace(word, segments=(segment_,))).end == 30


def test_segment_written_again_by_another_attempt_is_the_same(tmp_path: Path) -> None:
    """It says another time, and nothing else."""
    word = said(tmp_path, (0, 30))
    written(Store(str(tmp_path)), sample(), at="2026-11-22T00:00:00.000Z")
    assert check_report(Store(str(tmp_path)), SOURCE, 30, word).end == 30


@pytest.mark.parametrize(
    ("spans", "start", "seen"),
    [
        ([(0, 30)], 0, (0, 30)),
        ([(5, 30)], 7, (5, 30)),
        ([(0, 12), (12, 30)], 0, (0, 30)),
        ([(0, 20), (12, 30)], 0, (0, 30)),
        ([(0, 10), (12, 30)], 0, (12, 30)),  # a hole: the log must begin behind it by now
        ([(0, 29)], 0, None),
        ([], 0, None),
        ([], 30, (30, 30)),
    ],
)
def test_covered_offsets_follow_from_manifests_alone(
    tmp_path: Path, spans: list[tuple[int, int]], start: int, seen: tuple[int, int] | None
) -> None:
    word = said(tmp_path, *spans, start=start)
    if seen is None:
        assert "alone, and not to 30" in refusal(ArchiveError, check_report, Store(str(tmp_path)), SOURCE, 30, word)
    else:
        found = check_report(Store(str(tmp_path)), SOURCE, 30, word)
        assert (found.start, found.end) == seen


def test_segments_of_other_partitions_do_not_count(tmp_path: Path) -> None:
    word = said(tmp_path, (0, 30))
    for other in (replace(SOURCE, partition=4), replace(SOURCE, topic_id="another"), replace(SOURCE, cluster_id="x")):
        assert "No such file" in refusal(ArchiveError, check_report, Store(str(tmp_path)), other, 30, word)


def test_interrupted_client_accepts_nothing(tmp_path: Path) -> None:
    word = said(tmp_path, (0, 30))
    assert "interrupted" in refusal(ArchiveError, check_report, Store(str(tmp_path)), SOURCE, 30, word, lambda: True)


# -- several writers of one file -------------------------------------------------------------------


WRITING = """
import os, signal, sys
from retention_cli.archive import store
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
store.Store(sys.argv[1]).write("day=x/1.parquet", b"theirs")
"""


def test_temporary_file_is_removed_once_it_is_a_day_old(tmp_path: Path) -> None:
    (tmp_path / "day=x").mkdir()  # else the first fsync is the new folder's
    assert subprocess.run([sys.executable, "-c", WRITING, str(tmp_path)], check=False).returncode == -signal.SIGKILL
    (left,) = tmp_path.rglob("*.tmp")
    other = tmp_path / "day=x" / "somebody's.tmp"
    other.write_bytes(b"not ours")
    Store(str(tmp_path)).write("day=x/2.parquet", b"ours")
    assert left.exists(), "its writer may be alive"
    for one in (left, other):
        os.utime(one, (time.time() - 90_000,) * 2)
    Store(str(tmp_path)).write("day=x/2.parquet", b"ours")
    assert [path.name for path in tmp_path.rglob("*.tmp")] == ["somebody's.tmp"]


def test_each_writer_has_its_own_file_name_where_partial_files_are_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on HDFS: written beside, renamed, and taken away again where that failed."""
    monkeypatch.setattr("retention_cli.archive.store.RENAMES", ("subtree",))
    files = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    store = Store("hdfs://n/archive", files, "archive")
    store.write("a.parquet", b"one")
    store.write("a.parquet", b"two")
    assert store.read("a.parquet") == b"two"
    (tmp_path / "archive" / "b.parquet").mkdir()
    refusal(ArchiveError, store.write, "b.parquet", b"a folder stands there")
    assert [path.name for path in (tmp_path / "archive").iterdir() if path.is_file()] == ["a.parquet"]


class LikeHdfs:
    """A folder as pyarrow shows HDFS: no rename replaces, and what could not be asked about is "not found"."""

    type_name = "hdfs"

    def __init__(self, folder: Path) -> None:
        self._files = pyarrow.fs.SubTreeFileSystem(str(folder), pyarrow.fs.LocalFileSystem())
        self.answers = 1_000
        self.refuses: Callable[[str, str], bool] = lambda _source, _target: False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def get_file_info(self, asked: Any) -> Any:
        self.answers -= 1
        if self.answers >= 0:
            return self._files.get_file_info(asked)
        if isinstance(asked, pyarrow.fs.FileSelector):
            if asked.allow_not_found:
                return []
            raise OSError("HDFS list directory failed")
        return pyarrow.fs.FileInfo(asked, pyarrow.fs.FileType.NotFound)

    def move(self, source: str, target: str) -> None:
        if self.refuses(source, target) or self._files.get_file_info(target).is_file:
            raise OSError("HDFS rename failed")
        self._files.move(source, target)


def test_hdfs_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    files = LikeHdfs(tmp_path)
    store = Store("hdfs://n/archive", files, "archive")
    assert (store.exists(), store.files(), store.size("a")) == (False, [], None)
    store.write("day=x/a", b"one")
    assert (store.exists(), store.files(), store.size("day=x/a")) == (True, ["day=x/a"], 3)
    asked = (store.exists, store.files, lambda: store.size("day=x/a"), lambda: store.write("day=x/a", b"two"))
    for ask in asked:
        files.answers = 0
        assert "list directory failed" in refusal(ArchiveError, ask)
    files.answers = 1  # it is gone while it is asked
    assert "list directory failed" in refusal(ArchiveError, store.files)


def test_hdfs_keeps_a_file_until_its_replacement_exists(tmp_path: Path) -> None:
    files = LikeHdfs(tmp_path)
    store = Store("hdfs://n/archive", files, "archive")
    moved: list[tuple[bytes | None, str]] = []

    def watch(source: str, _target: str) -> bool:
        old = [path.read_bytes() for path in tmp_path.rglob("*") if path.suffix in ("", ".old") and path.is_file()]
        moved.append((old[0] if old else None, source.rpartition(".")[2]))
        return False

    files.refuses = watch
    for content in (b"one", b"one", b"two"):  # the same twice is written once
        store.write("a", content)
        assert store.read("a") == content
    assert moved == [(None, "tmp"), (b"one", "archive/a"), (b"one", "tmp")]
    files.refuses = lambda source, _: source.endswith(".tmp")
    assert "can't be written" in refusal(ArchiveError, store.write, "a", b"three")
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "archive").iterdir()] == [("a", b"two")]


# -- who copies what --------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 5 * RECORDS_A_TASK)), max_size=40))
def test_archive_job_has_one_task_per_partition_and_few_per_leader(asked: list[tuple[int, int]]) -> None:
    """Limited connections per broker; the same answer whatever the order."""
    wishes = [ArchiveRequest(Source("C", "t", "id", n), "/a", size, size) for n, (_, size) in enumerate(asked)]
    leaders = {one.tp: asked[one.source.partition][0] for one in wishes}
    tasks = sliced(wishes, leaders)
    assert sorted(one.source for some in tasks for one in some) == [one.source for one in wishes]
    assert all(tasks)
    by_leader: dict[int, list[int]] = {}
    for some in tasks:
        (leader,) = {leaders[one.tp] for one in some}
        by_leader.setdefault(leader, []).append(sum(one.records for one in some))
    for sizes in by_leader.values():
        assert len(sizes) <= TASKS_A_LEADER
        assert len(sizes) == 1 or sum(sizes) > RECORDS_A_TASK
    assert sliced(list(reversed(wishes)), leaders) == tasks
