"""Broken bytes: never an exception, never an offset or a timestamp that no batch shows."""

from __future__ import annotations

import tempfile
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


@dataclass(frozen=True)
class Harm:
    """What is done to a file: ``share`` says where, in thousandths of it."""

    kind: str
    share: int
    content: bytes

    def do(self, file: Path) -> None:
        if not file.exists():
            return
        data = bytearray(file.read_bytes())
        at = len(data) * self.share // 1000
        match self.kind:
            case "truncate":
                del data[at:]
            case "flip":
                for number, byte in enumerate(self.content[:4]):
                    if data:
                        data[(at + number) % len(data)] ^= byte
            case "overwrite":
                data[at : at + len(self.content)] = self.content
            case "insert":
                data[at:at] = self.content
            case "append":
                data += self.content
            case "zeros":
                data[at:] = bytes(len(data) - at)
            case "remove":
                file.unlink()
                return
        file.write_bytes(bytes(data))


HARMS = st.builds(
    Harm,
    st.sampled_from(["truncate", "flip", "overwrite", "insert", "append", "zeros", "remove"]),
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


def in_order(batches: list[list[int]]) -> list[list[int]]:
    stamps = iter(sorted(stamp for one in batches for stamp in one))
    return [[next(stamps) for _ in one] for one in batches]


@given(st.lists(BATCHES, min_size=3, max_size=3), SIZES, st.booleans(), st.booleans(), INDEXES)
def test_broken_indexes_change_no_fact_that_the_log_contains(
    parts: list[list[list[int]]], size: int, ordered: bool, grown: bool, harms: list[tuple[str, int, Harm]]
) -> None:
    """Where stamps grow, all of it stays true; where not, a lost end of a time index can hide the largest of them."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, made = write(Path(scratch), [in_order(one) for one in parts] if ordered else parts, size, grown=grown)
        for suffix, which, harm in harms:
            harm.do(folder / f"{made[which].base:020d}{suffix}")
        found = read(folder)
        assert found.problems == []
        assert logs.column(found, "next_offset") == [one.next_offset for one in made]
        assert logs.column(found, "first_timestamp") == [one.first for one in made]
        if ordered or not harms:
            assert logs.column(found, "largest_timestamp") == [one.largest for one in made]
        for one, largest in zip(made, logs.column(found, "largest_timestamp"), strict=True):
            assert largest in one.stamps


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
    with tempfile.TemporaryDirectory() as scratch:
        folder, made = write(Path(scratch), parts, size, grown=grown)
        for suffix, which, harm in harms:
            harm.do(folder / f"{made[which].base:020d}{suffix}")
        found = read(folder)
        bases = logs.column(found, "base_offset")
        assert set(bases) <= {one.base for one in made}
        for number, base in enumerate(bases):
            ends, stamps = shown((folder / f"{base:020d}.log").read_bytes())
            following = logs.column(found, "next_offset")[number]
            if number + 1 < len(bases):
                assert following == bases[number + 1]
            else:
                assert following is None or following == base or following in ends
            assert (
                logs.column(found, "largest_timestamp")[number] is None
                or logs.column(found, "largest_timestamp")[number] in stamps
            )
            assert (number in logs.flaws(found)) >= (following is None)


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
        assert len(inventory.table) == report.total("segments")
        assert len(inventory.incomplete) == len(report.incomplete)
