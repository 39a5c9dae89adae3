"""Archives without a cluster: records, digests, layout, manifests; what is damaged, or differs from a task's word, is not believed."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest
from hypothesis import given, strategies as st

from retention_cli.archive import layout
from retention_cli.archive.catalog import compact, plan_compaction, read_catalog, verify_catalog
from retention_cli.archive.layout import (
    ArchiveError,
    DamagedError,
    Manifest,
    Place,
    Source,
    manifest_text,
    place_of,
    read_manifest,
)
from retention_cli.archive.segment import (
    SegmentBuilder,
    encoded,
    load,
    records_of,
    verify_files,
)
from retention_cli.archive.store import KeyMissingError, Keys, Store
from retention_cli.archive.writer import Archived
from retention_cli.brokers.records import Record
from retention_cli.core.extras import arrow
from retention_cli.engines.spark.archiver import (
    RECORDS_A_TASK,
    REMOTE_REPORT,
    TASKS_A_LEADER,
    ArchiveRequest,
    NotingStore,
    RemoteReport,
    check_report,
    sliced,
)
from tests.support.archives import AT, DAY, SOURCE, cut, flipped, sample, written
from tests.support.says import refusal, says

content = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), content), max_size=4).map(tuple)
stamps = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20 * DAY)
stamped = st.just((None, None)) | st.tuples(stamps, st.sampled_from(["CreateTime", "LogAppendTime"]))
contents = st.tuples(st.none() | st.integers(0, 2**31 - 1), stamped, content, content, headers)
logs = st.dictionaries(st.integers(0, 10_000), contents, max_size=30).map(
    lambda found: [
        Record(offset, epoch, *stamp, key, value, some)
        for offset, (epoch, stamp, key, value, some) in sorted(found.items())
    ]
)
"""Records in the order of offsets, with gaps, of any content."""


@given(logs)
def test_archived_records_read_back_one_for_one(tmp_path_factory: pytest.TempPathFactory, log: list[Record]) -> None:
    """Null told from empty, headers in order and twice, any bytes, any timestamp."""
    store = Store(str(tmp_path_factory.mktemp("archive")))
    manifest = written(store, log)
    assert (list(records_of(store, manifest)), manifest.records) == (log, len(log))
    assert list(records_of(store, manifest, 5_000)) == [one for one in log if one.offset >= 5_000]


@given(logs)
def test_archiving_the_same_records_twice_writes_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, log: list[Record]
) -> None:
    folders = [tmp_path_factory.mktemp(name) for name in ("a", "b")]
    for folder in (*folders, *folders):
        written(Store(str(folder)), log)
    one, other = (
        {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in folders
    )
    assert one == other


FIELDS = Record(7, 1, 5, "CreateTime", b"k", b"v", (("a", b"1"), ("b", b"2")))
OTHERS = [
    FIELDS._replace(offset=8),
    FIELDS._replace(leader_epoch=None),
    FIELDS._replace(leader_epoch=0),
    FIELDS._replace(timestamp=6),
    FIELDS._replace(timestamp=None),
    FIELDS._replace(timestamp_type="LogAppendTime"),
    FIELDS._replace(key=None),
    FIELDS._replace(key=b""),
    FIELDS._replace(value=None),
    FIELDS._replace(value=b""),
    FIELDS._replace(key=b"kv", value=b""),
    FIELDS._replace(headers=()),
    FIELDS._replace(headers=(("b", b"2"), ("a", b"1"))),
    FIELDS._replace(headers=(("a", b"1"), ("a", b"1"), ("b", b"2"))),
    FIELDS._replace(headers=(("a", None), ("b", b"2"))),
    FIELDS._replace(headers=(("a", b""), ("b", b"2"))),
]


def test_different_records_have_different_checksums() -> None:
    assert len({encoded(one) for one in (FIELDS, *OTHERS)}) == len(OTHERS) + 1


@given(logs, logs)
def test_only_equal_logs_have_equal_encodings(one: list[Record], other: list[Record]) -> None:
    first, second = (b"".join(map(encoded, some)) for some in (one, other))
    assert (first == second) == (one == other)


def test_archive_paths_are_by_topic_id_and_partition(store: Store, tmp_path: Path) -> None:
    written(store, sample(), end=40)
    span = f"{0:020d}-{40:020d}"
    top = f"cluster={SOURCE.cluster_id}/topic=orders.eu/topic_id={SOURCE.topic_id}"
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == [
        f"{top}/_manifests/partition=3/{span}.json",
        f"{top}/partition=3/{span}.parquet",
    ]


def test_archive_opens_as_a_hive_partitioned_dataset(store: Store, tmp_path: Path) -> None:
    written(store, sample(), end=40)
    table = arrow("pyarrow.dataset").dataset(tmp_path, partitioning="hive").to_table()
    assert {"cluster", "topic", "topic_id", "partition", "offset", "headers"} <= set(table.column_names)
    assert table["partition"].to_pylist() == [3] * 30


def test_decreasing_offsets_are_refused() -> None:
    building = SegmentBuilder(SOURCE, 5)
    building.add(FIELDS)
    for offset in (7, 6, 4):
        assert "out of order" in refusal(ArchiveError, building.add, FIELDS._replace(offset=offset))


# -- damage ---------------------------------------------------------------------


def file_of(folder: Path, manifest: Manifest) -> Path:
    return folder / manifest.source.folder / manifest.files[0].path


@pytest.fixture
def segment(store: Store) -> Manifest:
    return written(store, sample())


def test_flipped_byte_in_a_segment_is_detected(store: Store, tmp_path: Path, segment: Manifest) -> None:
    """Or it changes nothing that is in a record, such as who wrote the file."""
    path = file_of(tmp_path, segment)
    whole = path.read_bytes()
    noticed = 0
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        try:
            verify_files(store, segment)
            assert list(records_of(store, segment)) == sample()
        except DamagedError as error:
            noticed += 1
            assert str(path.name) in str(error)
    assert noticed > len(whole) // 7 // 2


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(Path.unlink, id="missing"),
        pytest.param(cut, id="torn"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(lambda path: path.write_bytes(b"x" * path.stat().st_size), id="text"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes() + b"x"), id="longer"),
        pytest.param(lambda path: path.write_bytes(max(path.parent.iterdir()).read_bytes()), id="another's"),
    ],
)
def test_damaged_file_is_named(store: Store, tmp_path: Path, segment: Manifest, harm: Callable[[Path], object]) -> None:
    written(store, sample(31)[30:], start=30)
    path = file_of(tmp_path, segment)
    harm(path)
    assert str(path.relative_to(tmp_path)) in refusal(DamagedError, verify_files, store, segment)


def test_missing_record_is_detected_at_equal_file_size(store: Store, tmp_path: Path, segment: Manifest) -> None:
    written(store, sample()[:9] + sample()[10:])  # the same names, a record less
    [entry] = segment.files
    told = replace(segment, files=(replace(entry, size_bytes=file_of(tmp_path, segment).stat().st_size),))
    assert "29 of 30 records" in refusal(DamagedError, verify_files, store, told)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b'"to": 30', b'"to": 31'),
        lambda text: text.replace(b'"records": 30', b'"records": 29'),
        lambda text: text.replace(b"partition=3/", b"partition=4/"),
        lambda text: text[:-20],
        lambda _: b"",
        lambda _: b"[]",
        lambda _: b"\xff\xfe",
        lambda text: text.replace(b"archive/v1", b"archive/v2"),
        lambda text: b"[" * 100_000 + text,
        lambda text: text.replace(b'"to": 30', b'"to": Infinity'),
        lambda text: text.replace(b'"to": 30', b'"to": ' + b"9" * 5_000),
    ],
)
def test_edited_manifest_is_rejected(store: Store, segment: Manifest, change: Callable[[bytes], bytes]) -> None:
    text = store.read(segment.path)
    assert change(text) != text
    store.write(segment.path, change(text))
    refusal(DamagedError, load, store, segment.place)


def test_manifest_moved_to_another_place_is_rejected(store: Store, segment: Manifest) -> None:
    place = Place(replace(SOURCE, topic_id="another"), 0, 30)
    store.write(place.path, store.read(segment.path))
    assert "another place" in refusal(DamagedError, load, store, place)


def test_manifest_with_a_file_outside_its_topic_is_refused() -> None:
    own, other = layout.data_path(SOURCE.partition, 0, 1), layout.data_path(SOURCE.partition, 1, 2)
    manifest = Manifest(SOURCE, 0, 1, 1, AT, 0, 1, files=(layout.FileEntry(own, 1, 1, "c"),))
    for path in ("/etc/passwd", "../../other", f"x/../{own}", other):
        bad = replace(manifest, files=(layout.FileEntry(path, 1, 1, "c"),))
        refusal(DamagedError, read_manifest, manifest_text(bad).encode(), manifest.place)
    assert read_manifest(manifest_text(manifest).encode(), manifest.place) == manifest


@given(st.text(min_size=1, max_size=20).filter(lambda s: s.strip(".")), st.integers(0, 10**6))
def test_archive_path_parses_back_to_its_segment(name: str, partition: int) -> None:
    place = Place(Source(name, "t.x-y_z", "id", partition), 5, 9)
    assert place_of(place.path) == place
    assert ".." not in place.path.split("/")


# -- where it lies ---------------------------------------------------------------


def test_failed_write_leaves_the_previous_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write("a/x", b"before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert "a/x can't be written: No space left on device" in refusal(ArchiveError, store.write, "a/x", b"after")
    assert (store.read("a/x"), store.files()) == (b"before", ["a/x"])


def test_names_of_new_folders_are_on_disk_before_a_write_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was archived is deleted from the log next: a power failure must not lose the folders above it."""
    synced: set[int] = set()
    fsync = os.fsync

    def noted(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        fsync(handle)

    monkeypatch.setattr("os.fsync", noted)
    file = tmp_path / "new" / "archive" / written(Store(str(tmp_path / "new" / "archive")), sample()).path
    assert synced >= {one.stat().st_ino for one in file.parents if one.is_relative_to(tmp_path)}


def test_object_store_gets_complete_objects_without_renames() -> None:
    """A file system in memory stands in for one; a segment is the same there."""
    mock = arrow("pyarrow.fs")._MockFileSystem()
    mock.create_dir("bucket")
    mock.create_dir(f"bucket/top/{SOURCE.folder}/partition=3")
    mock.create_dir(f"bucket/top/{SOURCE.manifests}")
    store = Store("s3://bucket/top", mock, "bucket/top")
    manifest = written(store, sample())
    assert list(records_of(store, manifest)) == sample()
    assert sorted(store.files()) == sorted([manifest.path, *(f"{SOURCE.folder}/{one.path}" for one in manifest.files)])


def test_relative_archive_path_is_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Store("here").write("x", b"1")
    assert (tmp_path / "here" / "x").read_bytes() == b"1"
    assert [Store(url).read("x") for url in ("here", f"file://{tmp_path}/here")] == [b"1", b"1"]


def test_missing_archive_is_an_error(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "none"))
    assert (store.exists(), store.files()) == (False, [])
    says(refusal(ArchiveError, store.read, "x"), "none/x can't be read: ", "No such file")


# -- encrypted archives: what is sealed opens with its key, at its place, as a whole; anything else is damage --


def key_file(folder: Path, name: str = "key", *, raw: bool = False) -> Path:
    file, secret = folder / name, os.urandom(32)
    file.write_bytes(secret if raw else base64.b64encode(secret) + b"\n")
    return file


KEYS = Keys("11" * 8, {"11" * 8: b"k" * 32, "22" * 8: b"l" * 32})


def opened(sealed: bytes, path: str = "p", keys: Keys = KEYS, key_id: str = KEYS.newest) -> bytes:
    return bytes(keys.opened(pa.BufferReader(sealed), path, key_id, "x.parquet").read())


@given(st.binary(max_size=300))
def test_sealed_content_opens_and_is_never_sealed_twice_alike(content: bytes) -> None:
    sealed = KEYS.sealed("p", pa.py_buffer(content))
    assert opened(sealed) == content
    assert KEYS.sealed("p", content) != sealed
    assert Keys().sealed("p", content) == content


@given(st.binary(min_size=1, max_size=99), st.data())
def test_change_cut_or_swap_of_sealed_content_is_damage(content: bytes, data: st.DataObject) -> None:
    sealed = bytes(KEYS.sealed("p", content))
    at = data.draw(st.integers(0, len(sealed) - 1))
    changed = sealed[:at] + bytes([sealed[at] ^ data.draw(st.integers(1, 255))]) + sealed[at + 1 :]
    for other in (changed, sealed[:at], sealed + b"x"):
        refusal(DamagedError, opened, other)
    for path, keys in (("q", KEYS), ("p", Keys("", {KEYS.newest: b"m" * 32}))):
        refusal(DamagedError, opened, sealed, path, keys)


def test_key_that_was_not_given_is_named_and_the_secret_is_not() -> None:
    assert refusal(KeyMissingError, opened, KEYS.sealed("p", b"c"), keys=Keys()) == (
        f"x.parquet is encrypted with the key of id {KEYS.newest}: name its file (archive.key); none was given"
    )
    assert "kkk" not in repr(KEYS)


@pytest.mark.parametrize("content", [b"", b"short", b"A" * 31, b"A" * 33, base64.b64encode(b"A" * 31), b"\xff" * 44])
def test_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    (file := tmp_path / "key").write_bytes(content)
    assert "is not a key: it has 32 bytes, or these in base64 (openssl rand" in refusal(ArchiveError, Keys.read, [file])
    assert "gone can't be read: No such file" in refusal(ArchiveError, Keys.read, [tmp_path / "gone"])


def test_archive_is_read_by_its_keys_and_its_files_say_nothing_without(tmp_path: Path) -> None:
    """Rotation: the first key writes, all of them read. Manifests stay readable, and reveal no record."""
    old, new = key_file(tmp_path, "old"), key_file(tmp_path, "new", raw=True)
    url = str(tmp_path / "archive")
    first = written(Store(url, keys=[old]), sample(30))
    rotated = Store(url, keys=[new, old])
    second = written(rotated, [one._replace(offset=one.offset + 30) for one in sample(30)], start=30)
    assert first.files[0].checksum != written(Store(str(tmp_path / "plain")), sample(30)).files[0].checksum
    assert [*records_of(rotated, first)] == sample(30)
    assert len({one.files[0].key for one in (first, second)}) == 2
    content = file_of(tmp_path / "archive", first).read_bytes()
    assert (content[:8], b"PAR1" in content) == (b"KRETAIN1", False)
    (found,), _loose = read_catalog(Store(url))
    assert (found.records, found.problems) == (60, [])
    refusal(KeyMissingError, verify_catalog, Store(url, keys=[new]), [found])
    verify_catalog(rotated, [found])
    assert found.problems == []


def test_sealed_file_at_another_place_or_replaced_by_a_plain_one_is_damaged(tmp_path: Path) -> None:
    store, plain = Store(str(tmp_path / "archive"), keys=[key_file(tmp_path)]), Store(str(tmp_path / "plain"))
    first, second = written(store, sample(30)), written(store, sample(60)[30:], start=30)
    one = file_of(tmp_path / "archive", first)
    right = one.read_bytes()
    for wrong in (
        file_of(tmp_path / "archive", second),
        file_of(tmp_path / "plain", written(plain, sample(30))),
    ):
        one.write_bytes(wrong.read_bytes()[: len(right)].ljust(len(right), b"\0"))
        refusal(DamagedError, verify_files, store, first)
    one.write_bytes(right)
    verify_files(store, first)


def test_compaction_joins_sealed_segments_under_the_newest_key(tmp_path: Path) -> None:
    old, new = key_file(tmp_path, "old"), key_file(tmp_path, "new")
    url = str(tmp_path / "archive")
    for start in (0, 30):
        written(Store(url, keys=[old]), sample(60)[start : start + 30], start)
    store = Store(url, keys=[new, old])
    (partition,), _loose = read_catalog(store)
    (joined,) = compact(store, partition, plan_compaction(partition.segments), lambda: AT).written
    assert joined.files[0].key == store.keys.newest
    assert [*records_of(Store(url, keys=[new]), joined)] == sample(60)


def segments(store: Store, *spans: tuple[int, int]) -> list[Manifest]:
    return [written(store, sample()[start:end], start, end) for start, end in spans]


def said(folder: Path, *spans: tuple[int, int], start: int = 0) -> RemoteReport:
    """What a task says of segments that it wrote through a store of its own."""
    store = NotingStore(str(folder))
    done = Archived(SOURCE, str(folder), start, 30, tuple(segments(store, *spans)))
    return REMOTE_REPORT.validate_json(REMOTE_REPORT.dump_json(store.report(done)))


def harmed(what: str, change: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: change(max(folder.rglob(what)))


def other_records(folder: Path) -> None:
    """A segment of the same place that is whole, and has a record less."""
    written(Store(str(folder)), sample()[12:-1], 12, 30)


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (harmed("*.json", Path.unlink), "No such file"),
        (harmed("*.parquet", Path.unlink), "No such file"),
        (harmed("*.parquet", cut), "bytes, its manifest says"),
        (harmed("*.parquet", flipped), "CRC checksum|damaged|can't be read"),
        (other_records, "differs from what was written"),
        (lambda folder: folder.rename(folder.with_name("gone")), "No such file"),
    ],
)
def test_segment_that_differs_from_the_report_is_rejected(
    tmp_path: Path, harm: Callable[[Path], object], why: str
) -> None:
    folder = tmp_path / "archive"
    word = said(folder, (0, 12), (12, 30))
    harm(folder)
    text = refusal(ArchiveError, check_report, Store(str(folder)), SOURCE, 30, word)
    assert any(one in text for one in why.split("|"))


def test_report_has_the_checksum_of_each_file_that_was_read_back(store: Store, tmp_path: Path) -> None:
    """With these the client compares bytes alone, and decodes no record again."""
    [one] = said(tmp_path, (0, 30)).segments
    assert one.files == {name: store.digest(f"{SOURCE.folder}/{name}") for name in one.files} != {}


def test_rewritten_segment_is_accepted_after_it_was_read(store: Store, tmp_path: Path) -> None:
    """Where another attempt wrote it, it says another time, and nothing else."""
    word = said(tmp_path, (0, 30))
    other_bytes = replace(word.segments[0], files=dict.fromkeys(word.segments[0].files, "0" * 64))
    assert check_report(store, SOURCE, 30, replace(word, segments=(other_bytes,))).end == 30
    written(store, sample(), at="2026-11-22T00:00:00.000Z")
    assert check_report(store, SOURCE, 30, word).end == 30


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
    store: Store, tmp_path: Path, spans: list[tuple[int, int]], start: int, seen: tuple[int, int] | None
) -> None:
    word = said(tmp_path, *spans, start=start)
    if seen is None:
        assert "alone, and not to 30" in refusal(ArchiveError, check_report, store, SOURCE, 30, word)
    else:
        found = check_report(store, SOURCE, 30, word)
        assert (found.start, found.end) == seen


def test_segments_of_other_partitions_and_those_of_an_interrupted_client_do_not_count(
    store: Store, tmp_path: Path
) -> None:
    word = said(tmp_path, (0, 30))
    for other in (replace(SOURCE, partition=4), replace(SOURCE, topic_id="another"), replace(SOURCE, cluster_id="x")):
        assert "No such file" in refusal(ArchiveError, check_report, store, other, 30, word)
    assert "interrupted" in refusal(ArchiveError, check_report, store, SOURCE, 30, word, lambda: True)


# -- several writers of one file -------------------------------------------------------------------


WRITING = """
import os, signal, sys
from retention_cli.archive import store
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
store.Store(sys.argv[1]).write("day=x/1.parquet", b"theirs")
"""


def test_temporary_file_is_removed_once_it_is_a_day_old(store: Store, tmp_path: Path) -> None:
    (tmp_path / "day=x").mkdir()  # else the first fsync is the new folder's
    assert subprocess.run([sys.executable, "-c", WRITING, str(tmp_path)], check=False).returncode == -signal.SIGKILL
    (left,) = tmp_path.rglob("*.tmp")
    other = tmp_path / "day=x" / "somebody's.tmp"
    other.write_bytes(b"not ours")
    store.write("day=x/2.parquet", b"ours")
    assert left.exists(), "its writer may be alive"
    for one in (left, other):
        os.utime(one, (time.time() - 90_000,) * 2)
    store.write("day=x/2.parquet", b"ours")
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
    for ask in (store.exists, store.files, lambda: store.size("day=x/a"), lambda: store.write("day=x/a", b"two")):
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
