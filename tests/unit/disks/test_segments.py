"""A partition's folder, whole and broken in every way: what is known is true, what isn't is unknown and named."""

from __future__ import annotations

import itertools
import os
import random
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from retention_cli.brokers.wire.batch_headers import HEADER, HEADER_BYTES
from retention_cli.core.model import TopicPartition
from retention_cli.disks.inventory.log_dirs import (
    LayoutError,
    ScanError,
    folder_of,
    meta_properties_in,
    topic_id_in,
)
from retention_cli.disks.inventory.read import read_inventory
from retention_cli.disks.inventory.scan import read_partition, scan
from retention_cli.disks.inventory.segment import read_end
from tests.support import logs
from tests.support.logs import Made, read, sound
from tests.support.says import refusal

T = 1_700_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return logs.partition(tmp_path)


def paces(count: int) -> list[list[int]]:
    return [[T + 10 * n, T + 10 * n + 1] for n in range(count)]


def test_segment_facts_match_what_a_broker_wrote(folder: Path) -> None:
    made = logs.filled(folder, segments=4)
    found = sound(folder)
    assert (found.ignored, found.pending, found.topic_id, found.ends_active, logs.facts(found)) == (
        0,
        0,
        logs.TOPIC_ID,
        True,
        logs.true_facts(made),
    )
    written = [(folder / f"{one.base:020d}.log").stat().st_mtime_ns // 1_000_000 for one in made]
    assert [(one.base_offset, one.log_size, one.size, one.mtime) for one in found.segments] == [
        (one.base, len(one.log), one.bytes + 10, at) for one, at in zip(made, written, strict=True)
    ]


@pytest.mark.parametrize(("where", "size"), [(0, 200), (150, 200), (298, 200), (150, 6000), (1, 6000)], ids=str)
def test_largest_timestamp_in_the_middle_is_found_by_the_time_index(folder: Path, where: int, size: int) -> None:
    """A late record's stamp is not the last batch's: it is believed only where the log has it."""
    batches = paces(300)
    batches[where][1] = T + 10_000_000
    made = logs.segment(0, batches, size)
    made.write(folder)
    logs.segment(made.next_offset, paces(3)).write(folder)
    assert logs.column(sound(folder), "largest_timestamp")[0] == T + 10_000_000


@pytest.mark.parametrize("size", [200, 5000, 70_000])
@pytest.mark.parametrize("count", [0, 1, 2, 59, 60])
@pytest.mark.parametrize("fill", [False, True], ids=["stopped", "running"])
def test_active_segment_ends_at_its_last_batch(folder: Path, count: int, size: int, fill: bool) -> None:
    made = logs.segment(5, paces(count), size, closed=False)
    if fill:
        logs.preallocated(made)
    made.write(folder)
    assert logs.facts(sound(folder)) == logs.true_facts([made])


def test_unused_preallocated_space_takes_no_bytes(folder: Path) -> None:
    made = logs.segment(0, paces(60), closed=False)
    stem = made.write(folder, snapshot=False)
    assert max(len(made.index), len(made.timeindex)) < 4096
    for suffix in (".index", ".timeindex"):
        os.truncate(folder / (stem + suffix), 10 << 20)  # a hole, as RandomAccessFile.setLength makes it
    found = read(folder)
    assert found.segments[0].size <= len(made.log) + 4096 + 2 * 4096  # blocks of the file system
    assert logs.facts(found) == logs.true_facts([made])


APPEND_TIME, DELETE_HORIZON = 0x08, 0x40


@pytest.mark.parametrize(
    ("log", "following", "first", "largest"),
    [
        pytest.param(logs.batch(0, [5, 9, 7], attributes=APPEND_TIME), 3, 9, 9, id="all records were appended at 9"),
        pytest.param(
            logs.batch(0, [T, T + 1], attributes=DELETE_HORIZON, horizon=T - 100),
            *(2, None, T + 1),
            id="a delete horizon stands where the first timestamp was",
        ),
        pytest.param(logs.batch(0, [-1, -1]), 2, None, None, id="without timestamps"),
        pytest.param(logs.old_message(0, T) + logs.old_message(1, T + 5), 2, T, T + 5, id="messages before 0.11"),
        pytest.param(
            logs.old_message(4, T, attributes=1), 5, None, T, id="a compressed set of them: its stamp is its largest"
        ),
        pytest.param(logs.old_message(0, None) + logs.old_message(1, None), 2, None, None, id="and without timestamps"),
        pytest.param(logs.batch(3, [T], gap=4) + logs.batch(40, [T + 5], gap=2), 43, T, T + 5, id="compaction's gaps"),
    ],
)
def test_timestamps_of_every_record_format_are_read_or_unknown(
    folder: Path, log: bytes, following: int, first: int | None, largest: int | None
) -> None:
    (folder / f"{0:020d}.log").write_bytes(log)
    found = read(folder)
    assert (logs.facts(found), found.problems) == ([(following, first, largest)], [])


# -- broken files: of three segments of 60 batches, of 12 kB; each has two entries in its indexes, and the closing one --


CLOSED = f"{0:020d}"
ACTIVE = f"{240:020d}"


HARMS: dict[str, Callable[[Path, bytes], object]] = {
    "gone": lambda _file, _content: None,
    "empty": lambda file, _content: file.touch(),
    "cut": lambda file, content: file.write_bytes(content[:-3]),
    "zeros": lambda file, content: file.write_bytes(bytes(len(content))),
    "random": lambda file, content: file.write_bytes(random.Random(1).randbytes(len(content))),
    "folder": lambda file, _content: file.mkdir(),
    "pipe": lambda file, _content: os.mkfifo(file),
    "link": lambda file, _content: file.symlink_to(file.with_stem(f"{120:020d}")),
    "huge": lambda file, content: file.write_bytes(b"\x7f" * len(content)),
}
"""What happens to a file that has just been removed, and had this content."""


@pytest.mark.parametrize("stem", [CLOSED, ACTIVE], ids=["closed", "active"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("harm", HARMS)
def test_broken_index_changes_no_fact_of_a_segment(folder: Path, stem: str, suffix: str, harm: str) -> None:
    """The log itself says it: next offset and both timestamps are what they were."""
    made = logs.filled(folder)
    file = folder / (stem + suffix)
    content = file.read_bytes()
    file.unlink()
    HARMS[harm](file, content)
    found = read(folder)
    assert (logs.facts(found), found.problems) == (logs.true_facts(made), [])


@pytest.mark.parametrize("by", [-1, 1, 10**9])
def test_time_index_entry_without_a_batch_is_rejected(folder: Path, by: int) -> None:
    made = logs.filled(folder)
    stamp, offset = struct.unpack(">qi", made[0].timeindex[-12:])
    (folder / (CLOSED + ".timeindex")).write_bytes(made[0].timeindex[:-12] + struct.pack(">qi", stamp + by, offset))
    found = read(folder)
    assert (found.segments[0].largest_timestamp, found.notes) == (
        made[0].largest,
        [f"{CLOSED}.log: its time index doesn't fit its log"],
    )


@pytest.mark.parametrize("left", [1, 5, 16, 30, 60, 61, 100, 199])
def test_torn_tail_ends_at_the_last_complete_batch(folder: Path, left: int) -> None:
    made = logs.filled(folder)
    (folder / (ACTIVE + ".log")).write_bytes(bytes(made[2].log[: 59 * 200 + left]))
    found = read(folder)
    assert (found.problems, logs.facts(found)[2]) == ([], (made[2].next_offset - 2, made[2].first, made[2].stamps[-2]))
    # the first bytes of an offset are zeros, as preallocated space is
    torn = f"{ACTIVE}.log: its last batch is cut off at byte 11800 of {11_800 + left}"
    assert found.notes == ([torn] if left > 5 else [])


def test_empty_closed_segment_has_no_times(folder: Path) -> None:
    logs.filled(folder)
    for suffix in (".log", ".index", ".timeindex"):
        (folder / (CLOSED + suffix)).write_bytes(b"")
    found = sound(folder)
    assert (logs.facts(found)[0], found.segments[0].log_size) == ((120, None, None), 0)


@pytest.mark.parametrize(
    ("at", "unknown", "flaw"),
    [
        pytest.param(0, {"first", "largest"}, "its first batch can't be read", id="at the start"),
        pytest.param(
            *(5000, set(), None), id="in the middle: the offset index leads past it, all the rest of the log agrees"
        ),
        pytest.param(
            *(11_800, {"end", "largest"}),
            "its batches can't be read from byte 11800 on: what follows is not a batch",
            id="at the end",
        ),
    ],
)
def test_garbage_in_the_active_segment_makes_unknown_what_it_may_hide(
    folder: Path, at: int, unknown: set[str], flaw: str | None
) -> None:
    made = logs.filled(folder)
    made[2].log[at : at + 61] = b"\xee" * 61
    made[2].write(folder)
    found = read(folder)
    truth = zip(("end", "first", "largest"), logs.true_facts(made)[2], strict=True)
    active = tuple(None if name in unknown else value for name, value in truth)
    assert (logs.facts(found), logs.flaws(found), found.problems) == (
        [*logs.true_facts(made)[:2], active],
        {} if flaw is None else {2: flaw},
        [] if flaw is None else [f"{ACTIVE}.log: {flaw}"],
    )


def test_garbage_in_a_closed_segment_makes_its_largest_timestamp_unknown(folder: Path) -> None:
    closed = logs.filled(folder)[0]
    closed.log[11_800:11_861] = bytes(61)
    closed.log[11_990:] = b"!" * 10
    closed.write(folder)
    found = read(folder)
    assert (logs.facts(found)[0], list(logs.flaws(found))) == ((120, closed.first, None), [0])


def test_batches_overlapping_the_next_segment_are_a_problem(folder: Path) -> None:
    logs.segment(0, paces(60)).write(folder)
    logs.segment(100, paces(60)).write(folder)
    found = read(folder)
    assert (found.segments[0].next_offset, logs.flaws(found)) == (100, {0: "it holds offsets of the next segment"})


def test_compaction_gaps_cause_no_problem(folder: Path) -> None:
    Made(
        0,
        bytearray(logs.batch(3, [T], gap=4) + logs.batch(40, [T + 5], gap=2)),
        timeindex=bytearray(struct.pack(">qi", T + 5, 42)),
    ).write(folder)
    after = logs.segment(90, paces(2))
    after.write(folder)
    assert logs.facts(sound(folder)) == [(90, T, T + 5), *logs.true_facts([after])]


# -- things that lie beside them -----------------------------------------------------


def deleted(folder: Path, *stems: str) -> int:
    """Rename segments' files, as a broker that deletes them; return the bytes of the blocks that they take."""
    for file in [one for stem in stems for one in folder.glob(f"{stem}.*")]:
        file.rename(file.with_name(file.name + ".deleted"))
    return 512 * sum(one.stat().st_blocks for one in folder.glob("*.deleted"))


def test_deleted_files_are_pending_by_their_blocks_and_foreign_ones_ignored(folder: Path) -> None:
    """R6: a broker's preallocated index is a hole, and gives nothing back."""
    logs.filled(folder)
    pending = deleted(folder, CLOSED)
    os.truncate(folder / f"{CLOSED}.index.deleted", 10 << 20)
    for name in ("notes.txt", "0.log", "0000000000000000000x.log", "99999999999999999999.log", "٣" * 20 + ".log"):
        (folder / name).write_bytes(b"?")
    (folder / f"{7:020d}.log.cleaned").write_bytes(b"?")
    (folder / f"{360:020d}.snapshot").write_bytes(b"at its end, after a clean shutdown")
    found = read(folder)
    assert (logs.column(found, "base_offset"), found.pending, found.ignored, found.problems) == (
        [120, 240],
        pending,
        5,
        [],
    )


def test_transaction_indexes_and_snapshots_count_in_the_segment_size(folder: Path) -> None:
    made = logs.filled(folder)
    (folder / (CLOSED + ".txnindex")).write_bytes(b"t" * 34)
    (folder / (ACTIVE + ".txnindex")).write_bytes(b"t" * 68)
    assert logs.column(read(folder), "size") == [made[0].bytes + 44, made[1].bytes + 10, made[2].bytes + 78]


@pytest.mark.parametrize(
    "content", [b"", b"version: 0\n", b"version: 0\ntopic_id: no", b"\xff\x00", b"version: 7\ntopic_id: " + b"A" * 22]
)
def test_unreadable_topic_id_is_unknown(folder: Path, content: bytes) -> None:
    logs.filled(folder)
    (folder / "partition.metadata").write_bytes(content)
    found = read(folder)
    assert (found.topic_id, len(found.problems)) == (None, 1)
    (folder / "partition.metadata").unlink()
    assert read(folder).problems == [], "a broker of before 2.8 has none"


def test_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    there = logs.partition(tmp_path / "elsewhere")
    logs.filled(there)
    (tmp_path / "orders-0").symlink_to(there)
    assert "symbolic link" in read(tmp_path / "orders-0").problems[0]
    assert read_partition(str(tmp_path), "orders-2") is None


def around(monkeypatch: pytest.MonkeyPatch, name: str, work: Callable[..., Any]) -> None:
    """Call ``work`` in the place of a function of ``os``, which it gets as its first argument."""
    monkeypatch.setattr(os, name, partial(work, getattr(os, name)))


def test_unreadable_log_gets_a_row_from_its_file_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = logs.filled(folder)

    def refusing(real: Callable[..., int], path: Any, *more: Any, **named: Any) -> int:
        if str(path) == CLOSED + ".log":
            raise PermissionError(13, "Permission denied", path)
        return real(path, *more, **named)

    around(monkeypatch, "open", refusing)
    found = read(folder)
    assert (logs.facts(found)[0], found.segments[0].size, found.problems) == (
        (120, None, None),
        made[0].bytes + 10,
        [f"{CLOSED}.log: its log can't be read: Permission denied"],
    )


# -- while a broker works -----------------------------------------------------------


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """After each listing of a partition's folder, do the next of some works, as a broker may."""

    def install(*works: Callable[[], object]) -> None:
        left = iter(works)

        def listing(real: Callable[[Any], list[str]], path: Any) -> list[str]:
            names = real(path)
            next(left, lambda: None)()
            return names

        around(monkeypatch, "listdir", listing)

    return install


def test_segments_deleted_from_the_front_have_no_rows(folder: Path, between: Any) -> None:
    logs.filled(folder)
    between(partial(deleted, folder, CLOSED))
    found = read(folder)
    assert (logs.column(found, "base_offset"), found.problems, found.pending) == ([120, 240], [], deleted(folder))


def test_segment_replaced_by_the_cleaner_is_read_again(folder: Path, between: Any) -> None:
    """Two segments become one: what was the first one's end is not any more."""
    made = logs.filled(folder)
    merged = logs.segment(0, paces(30))
    swap = folder / f"{0:020d}.log.swap"

    def cleaner() -> None:
        deleted(folder, CLOSED, f"{120:020d}")
        swap.write_bytes(bytes(merged.log))

    def swapped() -> None:
        swap.unlink()
        merged.write(folder)

    between(cleaner, swapped)
    found = read(folder)
    assert (logs.column(found, "base_offset"), found.problems, logs.facts(found)) == (
        [0, 240],
        [],
        [(240, merged.first, merged.largest), *logs.true_facts(made[2:])],
    )


def test_unfinished_swap_is_a_problem(folder: Path) -> None:
    logs.filled(folder)
    (folder / (CLOSED + ".log.swap")).write_bytes(b"x")
    assert read(folder).problems == [
        f"changed while it was read, 5 times over: {CLOSED}.log.swap is waiting to replace it"
    ]


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "recreated"])
def test_partition_deleted_during_the_read_is_gone_and_not_mixed(folder: Path, between: Any, again: bool) -> None:
    logs.filled(folder)

    def delete() -> None:
        folder.rename(folder.with_name("orders-0." + "a" * 32 + "-delete"))
        if again:
            logs.partition(folder.parent)

    between(delete)
    assert read_partition(str(folder.parent), folder.name) is None


def test_append_in_progress_is_awaited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a batch, and all of it at the next look."""
    made = logs.segment(0, paces(60), closed=False)
    file = folder / f"{made.write(folder)}.log"
    os.truncate(file, len(made.log) - 70)
    sizes = []

    def looking(real: Callable[[int], os.stat_result], descriptor: int) -> os.stat_result:
        about = real(descriptor)
        sizes.append(about.st_size)
        if about.st_size == len(made.log) - 70:
            file.write_bytes(made.log)
        return about

    around(monkeypatch, "fstat", looking)
    found = read(folder)
    assert (logs.facts(found), found.notes) == (logs.true_facts([made]), [])
    assert len(sizes) >= 2


# -- names --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("a.b_c-d-12", TopicPartition("a.b_c-d", 12)),
        ("orders-0-7", TopicPartition("orders-0", 7)),
        ("x-delete-0", TopicPartition("x-delete", 0)),
        ("x." + "a" * 32 + "-delete-0", TopicPartition("x." + "a" * 32 + "-delete", 0)),
        ("orders-0." + "0123456789abcdef" * 2 + "-delete", "delete"),
        ("orders-0." + "0123456789abcdef" * 2 + "-future", "future"),
        ("orders-0." + "0123456789abcdef" * 2 + "-stray", "stray"),
        ("orders-0-delete", None),
        ("orders-00", None),
        ("orders-2147483648", None),
        ("orders", None),
        ("-0", None),
        ("lost+found", None),
        ("zürich-0", None),
        ("orders-٣", None),
        ("orders-0\n", None),
    ],
)
def test_folder_name_parses_to_topic_and_partition(name: str, what: object) -> None:
    assert folder_of(name) == what


@pytest.mark.parametrize(
    ("content", "identity"),
    [
        (b"#\ncluster.id=abc\nnode.id=3\nversion=1\ndirectory.id=xyz\n", (3, "abc", "xyz")),
        (b"broker.id=0\nversion=0\ncluster.id=abc\n", (0, "abc", None)),
        (b"\xff\xfe", (None, None, None)),
    ],
    ids=["KRaft", "ZooKeeper", "no text"],
)
def test_meta_properties_of_zookeeper_and_kraft_brokers_are_read(
    content: bytes, identity: tuple[int | None, str | None, str | None]
) -> None:
    found = meta_properties_in(content)
    assert (found.broker, found.cluster_id, found.directory_id) == identity


@pytest.mark.parametrize("wrong", [b"node.id=one", b"node.id=-1", b"node.id=99999999999", b"node.id=1\nbroker.id=2"])
def test_meta_properties_with_an_impossible_broker_id_are_refused(wrong: bytes) -> None:
    refusal(LayoutError, meta_properties_in, wrong)


# -- what mutants taught us ----------------------------------------------------------------


def end_read(
    monkeypatch: pytest.MonkeyPatch, file: Path, width: int, name: str, work: Callable[..., Any]
) -> tuple[int, bytes | None, str | None]:
    """Read the end of an index while ``work`` is ``around`` a function of ``os``: entries, the last one, the flaw."""
    opened = os.open(file.parent, os.O_RDONLY)
    with monkeypatch.context() as patch:
        around(patch, name, work)
        found = read_end(opened, file.name, width)
    os.close(opened)
    return found.entries, found.last, found.flaw


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("entry", [">ii", ">qi"])
def test_index_truncated_during_the_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, call: int
) -> None:
    """A broker that rolls a segment cuts its preallocated indexes at any moment."""
    width, count = struct.calcsize(entry), 300
    file = tmp_path / "x.index"
    file.write_bytes(b"".join(struct.pack(entry, n + 1, n + 1) for n in range(count)))
    os.truncate(file, (10 << 20) // width * width)
    calls = itertools.count(1)

    def rolled(real: Callable[..., bytes], *asked: Any) -> bytes:
        if next(calls) == call:
            os.truncate(file, count * width)
        return real(*asked)

    assert end_read(monkeypatch, file, width, "pread", rolled) == (count, struct.pack(entry, count, count), None)
    assert next(calls) > call


def test_index_that_keeps_changing_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.index"
    file.write_bytes(struct.pack(">ii", 1, 1) * 800)

    def cut(real: Callable[..., bytes], *asked: Any) -> bytes:
        os.truncate(file, max(0, file.stat().st_size - 8))
        return real(*asked)

    assert end_read(monkeypatch, file, 8, "pread", cut) == (0, None, "changes while it is read")


def test_index_entries_in_sparse_space_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that compresses says less than there is."""
    file = tmp_path / "x.index"
    file.write_bytes(b"".join(struct.pack(">ii", n + 1, n) for n in range(3000)) + bytes(80_000))

    def compressed(real: Callable[[int], os.stat_result], opened: int) -> Any:
        return type("About", (), {"st_size": real(opened).st_size, "st_blocks": 8})

    assert end_read(monkeypatch, file, 8, "fstat", compressed)[:2] == (3000, struct.pack(">ii", 3000, 2999))


def test_first_batch_younger_than_the_time_index_is_noticed(folder: Path) -> None:
    batches = paces(300)
    batches[0][0] = T + 10_000_000
    made = logs.segment(0, batches)
    made.timeindex[:] = struct.pack(">qi", made.stamps[-1], made.next_offset - 1)  # its true entries are lost
    made.write(folder)
    logs.segment(made.next_offset, paces(3)).write(folder)
    assert logs.column(read(folder), "largest_timestamp")[0] == T + 10_000_000


def test_decreasing_offsets_make_the_log_end_unknown(folder: Path) -> None:
    (folder / f"{0:020d}.log").write_bytes(logs.batch(10, [T, T]) + logs.batch(5, [T + 1]))
    found = read(folder)
    assert (logs.column(found, "next_offset"), logs.flaws(found)) == (
        [None],
        {0: "its batches can't be read from byte 200 on: what follows is not a batch"},
    )


def test_segment_renamed_during_the_read_has_no_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index is gone, its log still there, and a moment later it isn't: not a segment without an index."""
    logs.filled(folder)
    (folder / (CLOSED + ".index")).unlink()

    def opening(real: Callable[..., int], path: Any, *more: Any, **named: Any) -> int:
        file = real(path, *more, **named)
        if str(path) == CLOSED + ".log":
            for one in folder.glob(f"{CLOSED}.*"):
                one.unlink()
        return file

    around(monkeypatch, "open", opening)
    assert logs.column(sound(folder), "base_offset") == [120, 240]


def test_pipe_named_like_a_segment_is_not_the_active_one(folder: Path) -> None:
    """A broker passes it over: what stands before it is written to, and frees nothing."""
    logs.filled(folder)
    os.mkfifo(folder / f"{500:020d}.log")
    found = read(folder)
    assert (logs.column(found, "base_offset"), found.ignored, found.problems) == ([0, 120, 240], 1, [])


# -- broken bytes: never an exception, never an offset or a timestamp that no batch shows --


BATCHES = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=3), min_size=1, max_size=14)
SIZES = st.sampled_from([61, 80, 150])


KINDS: dict[str, Callable[[bytes, int, bytes], bytes]] = {
    "truncate": lambda data, at, _more: data[:at],
    "flip": lambda data, at, more: flipped(data, at, more[:4]),
    "overwrite": lambda data, at, more: data[:at] + more + data[at + len(more) :],
    "insert": lambda data, at, more: data[:at] + more + data[at:],
    "append": lambda data, _at, more: data + more,
    "zeros": lambda data, at, _more: data[:at] + bytes(len(data) - at),
}


def flipped(data: bytes, at: int, mask: bytes) -> bytes:
    """Flip bits from a place on, round the end."""
    masks = {(at + number) % len(data): byte for number, byte in enumerate(mask)} if data else {}
    return bytes(byte ^ masks.get(number, 0) for number, byte in enumerate(data))


def harm(file: Path, kind: str, share: int, content: bytes) -> None:
    """Do this to a file; ``share`` says where, in thousandths of it."""
    if kind == "remove":
        file.unlink(missing_ok=True)
    elif file.exists():
        data = file.read_bytes()
        file.write_bytes(KINDS[kind](data, len(data) * share // 1000, content))


Harm = tuple[str, int, bytes]
ANY_HARM = st.tuples(st.sampled_from([*KINDS, "remove"]), st.integers(0, 1000), st.binary(min_size=1, max_size=30))
INDEXES = st.lists(st.tuples(st.sampled_from([".index", ".timeindex"]), st.integers(0, 2), ANY_HARM), max_size=4)
ANYTHING = st.lists(
    st.tuples(st.sampled_from([".log", ".log", ".index", ".timeindex"]), st.integers(0, 2), ANY_HARM),
    min_size=1,
    max_size=4,
)


def write(root: Path, parts: list[list[list[int]]], size: int, *, grown: bool) -> tuple[Path, list[Made]]:
    folder = logs.partition(logs.log_dir(root / "data"))
    return folder, logs.put(folder, parts, size, 7, grown=grown, interval=200)


@contextmanager
def damaged(
    parts: list[list[list[int]]], size: int, harms: list[tuple[str, int, Harm]], *, grown: bool
) -> Iterator[tuple[Path, list[Made]]]:
    """Write segments, and harm files of them: by suffix, and by the segment's number."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, made = write(Path(scratch), parts, size, grown=grown)
        for suffix, which, how in harms:
            harm(folder / f"{made[which].base:020d}{suffix}", *how)
        yield folder, made


def in_order(batches: list[list[int]]) -> list[list[int]]:
    stamps = iter(sorted(stamp for one in batches for stamp in one))
    return [[next(stamps) for _ in one] for one in batches]


@given(st.lists(BATCHES, min_size=3, max_size=3), SIZES, st.booleans(), st.booleans(), INDEXES)
def test_broken_indexes_change_no_fact_that_the_log_contains(
    parts: list[list[list[int]]], size: int, ordered: bool, grown: bool, harms: list[tuple[str, int, Harm]]
) -> None:
    """Where stamps grow, all of it stays true; where not, a lost end of a time index can hide the largest of them."""
    parts = [in_order(one) for one in parts] if ordered else parts
    with damaged(parts, size, harms, grown=grown) as (folder, made):
        found = read(folder)
        assert found.problems == []
        truth = logs.true_facts(made)
        assert [one[:2] for one in logs.facts(found)] == [one[:2] for one in truth]
        assert logs.facts(found) == truth or (harms and not ordered)
        assert all(one.largest_timestamp in true.stamps for one, true in zip(found.segments, made, strict=True))


def shown(log: bytes) -> tuple[set[int], set[int]]:
    """Return next offsets and timestamps of all that could be a batch's header, at any byte of a log."""
    ends, stamps = set(), set()
    for at in range(len(log) - HEADER_BYTES + 1):
        if log[at + 16] == 2:
            offset, _, _, _, _, _, delta, _, largest, _, _, _, _ = HEADER.unpack_from(log, at)
            ends.add(offset + delta + 1)
            stamps.add(largest)
        if log[at + 16] in (0, 1):
            ends.add(int.from_bytes(log[at : at + 8], "big", signed=True) + 1)
            stamps.add(int.from_bytes(log[at + 18 : at + 26], "big", signed=True))
    return ends, stamps


@given(st.lists(BATCHES, min_size=3, max_size=3), SIZES, st.booleans(), ANYTHING)
def test_broken_log_yields_only_facts_that_its_bytes_contain(
    parts: list[list[list[int]]], size: int, grown: bool, harms: list[tuple[str, int, Harm]]
) -> None:
    with damaged(parts, size, harms, grown=grown) as (folder, made):
        found = read(folder)
        bases = logs.column(found, "base_offset")
        assert set(bases) <= {one.base for one in made}
        assert logs.column(found, "next_offset")[:-1] == bases[1:]
        for number, one in enumerate(found.segments):
            ends, stamps = shown((folder / f"{one.base_offset:020d}.log").read_bytes())
            if number + 1 == len(bases):
                assert one.next_offset in {None, one.base_offset, *ends}
            assert one.largest_timestamp in {None, *stamps}
            assert one.problem is not None or one.next_offset is not None


@given(st.one_of(st.binary(max_size=300), st.text(max_size=100).map(str.encode)))
def test_small_files_of_any_content_are_read_or_refused(content: bytes) -> None:
    for reading in (meta_properties_in, topic_id_in):
        try:
            reading(content)
        except LayoutError as error:
            assert str(error)


@given(st.lists(st.tuples(st.integers(0, 400), ANY_HARM), max_size=2), st.booleans())
def test_scan_of_damaged_files_gives_a_readable_inventory_or_a_one_line_error(
    harms: list[tuple[int, Harm]], meta: bool
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        folder, _ = write(root, [[[1, 2], [3]], [[4], [5]]], 80, grown=False)
        files = sorted(folder.iterdir()) + ([root / "data" / "meta.properties"] if meta else [])
        for which, how in harms:
            harm(files[which % len(files)], *how)
        out = root / "out.parquet"
        try:
            report = scan([str(root / "data")], str(out), now_ms=0)
        except ScanError as error:
            assert "\n" not in str(error)
            assert not out.exists()
            return
        inventory = read_inventory([out])
        assert (len(inventory.table), len(inventory.incomplete)) == (report.total("segments"), len(report.incomplete))
