"""Broken bytes: never an exception, never an offset or a timestamp that no batch shows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, strategies as st

from retention_cli.brokers.wire.batch_headers import HEADER, HEADER_BYTES
from retention_cli.disks.inventory.log_dirs import LayoutError, ScanError, meta_properties_in, topic_id_in
from retention_cli.disks.inventory.read import read_inventory
from retention_cli.disks.inventory.scan import scan
from tests.support import logs
from tests.support.logs import Made, read

STAMPS = st.integers(0, 50)
BATCHES = st.lists(st.lists(STAMPS, min_size=1, max_size=3), min_size=1, max_size=14)
SIZES = st.sampled_from([61, 80, 150])
INTERVAL = 200


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


@dataclass(frozen=True)
class Harm:
    """What is done to a file: ``share`` says where, in thousandths of it."""

    kind: str
    share: int
    content: bytes

    def do(self, file: Path) -> None:
        if self.kind == "remove":
            file.unlink(missing_ok=True)
        elif file.exists():
            data = file.read_bytes()
            file.write_bytes(KINDS[self.kind](data, len(data) * self.share // 1000, self.content))


HARMS = st.builds(
    Harm,
    st.sampled_from([*KINDS, "remove"]),
    st.integers(0, 1000),
    st.binary(min_size=1, max_size=30),
)
INDEXES = st.lists(st.tuples(st.sampled_from([".index", ".timeindex"]), st.integers(0, 2), HARMS), max_size=4)
ANYTHING = st.lists(
    st.tuples(st.sampled_from([".log", ".log", ".index", ".timeindex"]), st.integers(0, 2), HARMS),
    min_size=1,
    max_size=4,
)


def write(root: Path, parts: list[list[list[int]]], size: int, *, grown: bool) -> tuple[Path, list[Made]]:
    folder = logs.partition(logs.log_dir(root / "data"))
    made, base = [], 7
    for number, batches in enumerate(parts):
        last = number + 1 == len(parts)
        one = logs.segment(base, batches, size, closed=not last, interval=INTERVAL)
        if last and grown:
            logs.preallocated(one, 8192)
        one.write(folder)
        made.append(one)
        base = one.next_offset
    return folder, made


@contextmanager
def damaged(
    parts: list[list[list[int]]], size: int, harms: list[tuple[str, int, Harm]], *, grown: bool
) -> Iterator[tuple[Path, list[Made]]]:
    """Write segments, and harm files of them: by suffix, and by the segment's number."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, made = write(Path(scratch), parts, size, grown=grown)
        for suffix, which, harm in harms:
            harm.do(folder / f"{made[which].base:020d}{suffix}")
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


@given(st.lists(st.tuples(st.integers(0, 400), HARMS), max_size=2), st.booleans())
def test_scan_of_damaged_files_gives_a_readable_inventory_or_a_one_line_error(
    harms: list[tuple[int, Harm]], meta: bool
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        folder, _ = write(root, [[[1, 2], [3]], [[4], [5]]], 80, grown=False)
        files = sorted(folder.iterdir()) + ([root / "data" / "meta.properties"] if meta else [])
        for which, harm in harms:
            harm.do(files[which % len(files)])
        out = root / "out.parquet"
        try:
            report = scan([str(root / "data")], str(out), now_ms=0)
        except ScanError as error:
            assert "\n" not in str(error)
            assert not out.exists()
            return
        inventory = read_inventory([out])
        assert (len(inventory.table), len(inventory.incomplete)) == (report.total("segments"), len(report.incomplete))
