"""Log dirs and their inventory: what lies in them, the file, the commands, and what the rules believe of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Answer, Found, NotFound
from retention_cli.core.model import Maybe, PartitionFacts, Tail, TopicPartition, Unknown
from retention_cli.disks.disk import Disk, Room
from retention_cli.disks.inventory.format import (
    COLUMNS,
    FORMAT,
    METADATA_KEY,
    Inventory,
    InventoryError,
    InventoryFile,
    ScannedReplica,
    schema,
)
from retention_cli.disks.inventory.log_dirs import ScanError, find_log_dirs
from retention_cli.disks.inventory.read import by_dir, by_topic, read_inventory
from retention_cli.disks.inventory.scan import scan
from retention_cli.disks.inventory_view import InventoryView, doubt, doubts_of
from retention_cli.disks.water_level import NO_END, UNDATED
from retention_cli.policy.settings import Settings
from tests.support import logs
from tests.support.disks import view_of
from tests.support.facts import NOW, Log, known, topic, why
from tests.support.says import refusal, says
from tests.support.world import Cli, run_cli, written

GONE = "." + "0123456789abcdef" * 2


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    """Two log dirs of broker 1: orders-0 and orders-2 and payments-0 in one, orders-1 in the other."""
    first, second = logs.log_dir(tmp_path / "a"), logs.log_dir(tmp_path / "b")
    for folder, name in ((first, "orders-0"), (first, "orders-2"), (first, "payments-0"), (second, "orders-1")):
        logs.filled(logs.partition(folder, name), segments=3)
    return [first, second]


def scan_all(dirs: list[Path], out: Path, **more: Any) -> Any:
    return scan([str(one) for one in dirs], str(out), now_ms=NOW, **more)


@pytest.fixture
def out(dirs: list[Path], tmp_path: Path) -> Path:
    """The inventory of both log dirs."""
    path = tmp_path / "out.parquet"
    scan_all(dirs, path)
    return path


def scanned(tmp_path: Path, broker: int, name: str = "orders-0", **more: Any) -> Path:
    """Make a log dir of another broker, with a partition in it, and its inventory."""
    folder = logs.log_dir(tmp_path / f"{broker}", broker=broker, **more)
    logs.filled(logs.partition(folder, name))
    path = tmp_path / "inventories" / f"{broker}.parquet"
    path.parent.mkdir(exist_ok=True)
    scan_all([folder], path)
    return path


def blocks_bytes(*files: Path) -> int:
    return 512 * sum(one.stat().st_blocks for one in files)


def test_inventory_reads_back_as_written(dirs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    report = scan_all(dirs, out, tiered=lambda topic: topic == "payments")
    inventory = read_inventory([out])
    assert inventory.table.column_names == [name for name, _, _ in COLUMNS]
    rows = inventory.table.to_pylist()
    order = [(row["dir"], row["topic"], row["partition"], row["base_offset"]) for row in rows]
    assert (
        len(rows),
        report.total("segments"),
        order,
        {(row["broker"], row["dir"]) for row in rows},
        sum(row["active"] for row in rows),
        {(row["topic"], row["tiered"]) for row in rows},
    ) == (12, 12, sorted(order), {(1, str(one)) for one in dirs}, 4, {("orders", False), ("payments", True)})
    (file,) = inventory.files
    assert (file.broker, file.cluster_id, file.scanned_at_ms, inventory.age_ms(NOW + 5000)) == (
        1,
        "kNPKKYq_QvOnBaZb46V_BQ",
        NOW,
        5000,
    )
    device = dirs[0].stat().st_dev
    assert {one.device for one in file.dirs} == {f"{os.major(device)}:{os.minor(device)}"}
    assert file.dirs[0].total_bytes > file.dirs[0].usable_bytes > 0
    assert (
        [(row["topic"], row["replicas"]) for row in by_topic(inventory)],
        [row["dir"] for row in by_dir(inventory)],
        read_inventory([out], ["bytes", "topic"]).table.column_names,
    ) == ([("orders", 3), ("payments", 1)], [str(one) for one in dirs], ["topic", "bytes"])


def test_scan_writes_nothing_into_log_dirs(dirs: list[Path], tmp_path: Path) -> None:
    def state() -> list[tuple[str, int, int, int]]:
        found = [one for folder in dirs for one in (folder, *folder.rglob("*"))]
        return sorted((str(one), one.lstat().st_mtime_ns, one.lstat().st_ctime_ns, one.lstat().st_ino) for one in found)

    before = state()
    scan_all(dirs, tmp_path / "out.parquet")
    assert state() == before


def test_row_group_spans_partitions_until_it_is_full(
    dirs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retention_cli.disks.inventory.scan.ROW_GROUP", 5)
    scan_all(dirs, tmp_path / "out.parquet")
    about = pq.ParquetFile(tmp_path / "out.parquet").metadata
    assert (
        [about.row_group(n).num_rows for n in range(about.num_row_groups)],
        len(read_inventory([tmp_path / "out.parquet"]).table),
    ) == ([6, 6], 12)


def test_folder_without_a_live_replica_is_counted_without_rows(dirs: list[Path], tmp_path: Path) -> None:
    for kind in ("delete", "future", "stray"):
        logs.filled(logs.partition(dirs[0], f"gone-0{GONE}-{kind}"), segments=1)
    for name in ("lost+found", "remote-log-index-cache", "backup"):
        (dirs[0] / name).mkdir()
    (dirs[0] / "readme-1").write_text("a file with a partition's name")
    report = scan_all(dirs, tmp_path / "out.parquet")
    one, size = report.dirs[0], blocks_bytes(*(dirs[0] / f"gone-0{GONE}-delete").iterdir())
    assert (
        one.pending_bytes,
        one.future_bytes,
        one.stray_bytes,
        one.ignored,
        one.topics,
        one.partitions,
        one.segments,
        report.incomplete,
    ) == (size, size, size, 2, 2, 3, 9, [])


def test_pending_bytes_deleted_during_a_scan_still_count(dirs: list[Path], tmp_path: Path) -> None:
    """What others write into the room would else seem to stay: the volume is as full as before."""
    swept = written(dirs[0] / "orders-0" / f"{7:020d}.log.deleted", b"x" * 100_000)
    size = blocks_bytes(swept)

    def progress(_what: str, done: int, _count: int | None) -> None:
        if not done:
            swept.unlink()

    report = scan_all(dirs, tmp_path / "out.parquet", progress=progress)
    assert (swept.exists(), report.dirs[0].pending_bytes) == (False, size)


def test_partition_in_two_dirs_is_incomplete(dirs: list[Path], tmp_path: Path) -> None:
    """Caught in the midst of a move: which of them counts, the broker knows."""
    shutil.copytree(dirs[0] / "orders-0", dirs[1] / "orders-0")
    scan_all(dirs, tmp_path / "both.parquet")
    assert set(read_inventory([tmp_path / "both.parquet"]).incomplete) == {(1, "orders", 0)}
    for number, one in enumerate(dirs):
        scan_all([one], tmp_path / f"{number}.parquet")
    assert set(read_inventory([tmp_path / "0.parquet", tmp_path / "1.parquet"]).incomplete) == {(1, "orders", 0)}


# -- whose dirs they are ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "broker", "what"),
    [
        (["a", "other"], None, "two brokers (1 and 2)"),
        (["a", "foreign"], None, "two clusters"),
        (["a", "a/"], None, "the same folder"),
        (["a", "link"], None, "the same folder"),
        (["empty"], None, "not a log dir"),
        (["none"], None, "can't be read: No such file"),
        (["a"], 7, "belongs to broker 1, not 7"),
    ],
)
def test_log_dirs_of_different_brokers_or_clusters_are_refused(
    dirs: list[Path], tmp_path: Path, names: list[str], broker: int | None, what: str
) -> None:
    logs.log_dir(tmp_path / "other", broker=2)
    logs.log_dir(tmp_path / "foreign", cluster="another")
    (tmp_path / "link").symlink_to(dirs[0])
    (tmp_path / "empty").mkdir()
    assert what in refusal(ScanError, find_log_dirs, [f"{tmp_path}/{name}" for name in names], broker)


def test_log_dir_without_meta_properties_needs_a_broker_id(dirs: list[Path]) -> None:
    (dirs[0] / "meta.properties").unlink()
    assert "give --broker-id" in refusal(ScanError, find_log_dirs, [str(dirs[0])])
    assert find_log_dirs([str(dirs[0])], 5)[:2] == (5, None)
    assert find_log_dirs([str(one) for one in dirs])[0] == 1, "another dir says it"


def test_inventory_written_into_a_log_dir_is_refused(dirs: list[Path]) -> None:
    assert "write it elsewhere" in refusal(ScanError, scan_all, dirs, dirs[1] / "out.parquet")


def test_unwritable_inventory_leaves_no_files_behind(dirs: list[Path], tmp_path: Path) -> None:
    assert "can't be written" in refusal(ScanError, scan_all, dirs, tmp_path / "none" / "out.parquet")
    (tmp_path / "taken.parquet").mkdir()
    assert "can't be written" in refusal(ScanError, scan_all, dirs, tmp_path / "taken.parquet")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "b", "taken.parquet"]


def test_interrupted_scan_keeps_the_old_inventory(dirs: list[Path], tmp_path: Path) -> None:
    out = written(tmp_path / "out.parquet", b"old")

    def interrupt(*_progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scan_all(dirs, out, progress=interrupt)
    assert out.read_bytes() == b"old"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "b", "out.parquet"]


# -- reading back ---------------------------------------------------------------------------


def same(value: Any) -> Any:
    return value


def edited(source: Path, change: Callable[[Any], Any], about: Callable[[Any], Any] = same) -> Path:
    """Write an inventory beside one, with other rows, or another word about itself."""
    table = change(pq.read_table(source))
    said = json.loads(pq.ParquetFile(source).metadata.metadata[METADATA_KEY])
    said["totals"]["segments"] = len(table)
    bad = source.with_name("bad.parquet")
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(about(said)).encode()}), bad)
    return bad


def put(name: str, row: int, value: Any) -> Callable[[Any], Any]:
    def change(table: Any) -> Any:
        values = table[name].to_pylist()
        values[row] = value
        kind = pa.field(name, table.schema.field(name).type)
        return table.set_column(table.schema.get_field_index(name), kind, pa.array(values, kind.type))

    return change


def without(values: dict[str, Any], key: str) -> dict[str, Any]:
    return {one: value for one, value in values.items() if one != key}


IMPOSSIBLE = [
    (put("base_offset", 1, 0), "is listed twice or out of order"),
    (lambda table: table.take(pa.array([1, 0, *range(2, len(table))])), "is listed twice or out of order"),
    (lambda table: pa.concat_tables([table, table.slice(0, 2)]), "appears twice"),
    (put("next_offset", 0, 121), "begins before the one before it ends"),
    (put("next_offset", 0, 119), "begins after a gap"),
    (put("log_bytes", 0, 1 << 30), "takes less than its own log file"),
    (put("next_offset", 2, 5), "ends before it begins"),
    (put("base_offset", 0, -1), "has a negative base offset"),
    (put("partition", 0, -1), "has a negative partition"),
    (put("bytes", 3, -1), "has a negative size"),
    (put("broker", 3, 2), "is of another broker than 1"),
    (put("dir", 3, "/elsewhere"), "is in /elsewhere, which was not scanned"),
    (put("bytes", 0, 1 << 36), "is larger than any segment"),
    (lambda table: put("bytes", 0, 1 << 33)(put("log_bytes", 0, 1 << 33)(table)), "is larger than any segment"),
    (put("topic", 3, None), "1 rows have no topic"),
    (lambda table: table.drop_columns(["mtime"]), "lacks the column mtime"),
    (lambda table: table.set_column(7, "bytes", table["bytes"].cast(pa.float64())), "the column bytes is double"),
]
WRONG_HEADS = [
    (lambda said: said | {"format": "kretain.segments/v9"}, f"this kretain reads {FORMAT}"),
    (lambda _said: {"format": FORMAT}, "its metadata can't be read"),
    (lambda said: said | {"scanned_at": "yesterday"}, "its metadata can't be read"),
    (lambda said: said | {"dirs": 5}, "its metadata can't be read"),
    (lambda said: [said], "its metadata can't be read"),
    (lambda said: said | {"incomplete": [{"topic": "x"}]}, "its metadata can't be read"),
    (lambda said: said | {"totals": {"segments": 13}}, "has 12 rows, and its scan wrote 13"),
    (lambda said: said | {"totals": {}}, "its metadata can't be read"),
    (lambda said: said | {"dirs": [{}]}, "its metadata can't be read"),
    (lambda said: said | {"dirs": [without(said["dirs"][0], "device")]}, "its metadata can't be read"),
    (lambda said: said | {"dirs": [without(said["dirs"][0], "bytes")]}, "its metadata can't be read"),
    (lambda said: said | {"dirs": [said["dirs"][0] | {"unread": "x"}]}, "its metadata can't be read"),
    (lambda said: said | {"broker": 1e400}, "its metadata can't be read"),
]


@pytest.mark.parametrize(
    ("change", "about", "what"),
    [*((change, same, what) for change, what in IMPOSSIBLE), *((same, about, what) for about, what in WRONG_HEADS)],
)
def test_inventory_with_impossible_rows_or_metadata_is_refused(
    out: Path, change: Callable[[Any], Any], about: Any, what: str
) -> None:
    bad = edited(out, change, about)
    says(refusal(InventoryError, read_inventory, [bad]), what, str(bad))


NESTED = {METADATA_KEY: b"[" * 100_000}


@pytest.mark.parametrize(
    ("put_there", "what"),
    [
        (lambda out, bad: bad.write_bytes(out.read_bytes()[:3000]), "is not a Parquet file that kretain can read"),
        (lambda _out, bad: bad.write_text("no"), "is not a Parquet file that kretain can read"),
        (lambda _out, bad: bad.touch(), "is not a Parquet file that kretain can read"),
        (lambda _out, bad: pq.write_table(pa.table({"x": [1]}), bad), "is not an inventory of segments"),
        (
            lambda out, bad: pq.write_table(pq.read_table(out).replace_schema_metadata(NESTED), bad),
            "its metadata can't be read",
        ),
        (lambda _out, _bad: None, "can't be read"),
        (lambda _out, bad: bad.mkdir(), "no inventory: name a file"),
        (lambda _out, bad: os.mkfifo(bad), "it is a pipe or a device"),
    ],
    ids=["cut", "text", "empty", "other columns", "endlessly nested metadata", "absent", "a folder", "a pipe"],
)
def test_file_that_is_no_inventory_is_refused_in_one_line(
    out: Path, put_there: Callable[[Path, Path], object], what: str
) -> None:
    bad = out.with_name("bad.parquet")
    put_there(out, bad)
    says(refusal(InventoryError, read_inventory, [bad]), what, never=["\n"])


@pytest.mark.parametrize(("limit", "what"), [("MOST_ROWS", "has 12 rows, and at most 11"), ("MOST_BYTES", "MiB unco")])
def test_inventory_above_the_size_limit_is_refused_before_it_is_read(
    out: Path, monkeypatch: pytest.MonkeyPatch, limit: str, what: str
) -> None:
    """Equal rows take next to nothing in a file: 100 million were 5.5 MB there, and 11 GiB here."""
    monkeypatch.setattr(f"retention_cli.disks.inventory.read.{limit}", 11)
    monkeypatch.setattr("retention_cli.disks.inventory.read.check_rows", pytest.fail)
    assert what in refusal(InventoryError, read_inventory, [out])


def test_pipe_in_place_of_meta_properties_is_not_opened(dirs: list[Path], tmp_path: Path) -> None:
    (dirs[0] / "meta.properties").unlink()
    os.mkfifo(dirs[0] / "meta.properties")
    assert "meta.properties can't be read: it is a pipe or a device" in refusal(
        ScanError, scan_all, dirs, tmp_path / "out.parquet"
    )


def test_unreadable_inventory_makes_only_its_broker_unknown(tmp_path: Path) -> None:
    good, second = (scanned(tmp_path, broker, f"orders-{broker}") for broker in (1, 2))
    bad = edited(second, put("base_offset", 0, -1))
    inventory = read_inventory([good, bad])
    assert inventory.brokers == {1}
    assert [str(bad) in one and "has a negative base offset" in one for one in inventory.unread] == [True]
    leaders = {TopicPartition("orders", 1): 1, TopicPartition("orders", 2): 2}
    found = InventoryView(inventory).bases(leaders, dict.fromkeys(leaders, logs.TOPIC_ID))
    # what was not read is unknown, and holds
    assert [isinstance(found[tp], Unknown) for tp in leaders] == [False, True]
    assert f"{bad}: orders-2 at offset -1" in kretain("segments", "show", str(good), str(bad), code=5).err
    assert kretain("segments", "show", str(bad), code=1).out == ""


def test_inventories_that_overlap_or_differ_in_cluster_are_refused(dirs: list[Path], tmp_path: Path) -> None:
    first, second = tmp_path / "1.parquet", tmp_path / "2.parquet"
    scan_all(dirs[:1], first)
    scan_all(dirs[1:], second)
    assert len(read_inventory([first, second]).table) == 12, "one broker, two dirs"
    assert f"both hold {dirs[0]} of broker 1" in refusal(InventoryError, read_inventory, [first, first])
    assert "are of two clusters" in refusal(
        InventoryError, read_inventory, [first, scanned(tmp_path, 2, cluster="another")]
    )


def test_folder_of_inventories_is_read_with_all_its_files(tmp_path: Path) -> None:
    for broker in (1, 2, 3):
        scanned(tmp_path, broker)
    scan_all([logs.log_dir(tmp_path / "4", broker=4)], tmp_path / "inventories" / "4.parquet")
    inventory = read_inventory([tmp_path / "inventories"])
    assert inventory.brokers == {1, 2, 3, 4}
    assert (len(inventory.table), inventory.incomplete) == (9, {})


# -- the commands -----------------------------------------------------------------------------


def kretain(*arguments: str, code: int = 0) -> Cli:
    done = run_cli(*arguments, check=code)
    assert "Traceback" not in done.err
    return done


def test_segments_commands_show_dirs_and_topics(dirs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    done = kretain("segments", "scan", *map(str, dirs), "--out", str(out), "--tiered", "pay*")
    assert done.err == ""
    says(done.out, "Broker 1: 2 topics, 4 partitions, 12 segments, ", f"Written to {out}.")
    assert {row["tiered"] for row in read_inventory([out]).table.to_pylist()} == {True, False}
    report = json.loads(kretain("segments", "scan", str(dirs[0]), "-o", "json").out)
    assert (report["totals"]["segments"], report["format"], report["problems"], report["out"]) == (
        9,
        "kretain.segments-scan/v1",
        0,
        None,
    )
    shown = json.loads(kretain("segments", "show", str(out), "-o", "json").out)
    files = [one for folder in dirs for one in folder.rglob("0*")]
    sizes = [one.stat().st_size for one in files if one.suffix in (".log", ".index", ".timeindex", ".snapshot")]
    assert (shown["totals"], [row["topic"] for row in shown["topics"]]) == (
        {"topics": 2, "partitions": 4, "segments": 12, "bytes": sum(sizes)},
        ["orders", "payments"],
    )


def test_segments_commands_exit_5_if_incomplete_and_1_if_refused(dirs: list[Path], tmp_path: Path) -> None:
    (dirs[0] / "orders-0" / f"{240:020d}.log").write_bytes(b"\xee" * 500)
    out = str(tmp_path / "out.parquet")
    done = kretain("segments", "scan", *map(str, dirs), "--out", out, code=5)
    assert "orders-0: 00000000000000000240.log: its batches can't be read from byte 0 on" in done.err
    assert "1 problem" in done.out
    assert "orders-0 of broker 1:" in kretain("segments", "show", out, code=5).err
    assert "not a log dir" in kretain("segments", "scan", str(tmp_path), code=1).err
    kretain("segments", "scan", str(dirs[0]), "--tiered", "x", "--no-tiered", code=2)


# -- an inventory asked by the rules: leaders' segments alone, of today's topics, and what it does not hold is unknown --


T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
IDS = {T0: "id-1", T1: "id-1"}


def row(broker: int, tp: TopicPartition, base: int, size: int, time: int, *, active: bool = False, **more: Any) -> dict:
    plain = {
        "broker": broker,
        "dir": "/a",
        "topic": tp.topic,
        "topic_id": "id-1",
        "partition": tp.partition,
        "base_offset": base,
        "next_offset": base + 10,
        "bytes": size + 1,
        "log_bytes": size,
        "first_timestamp": time,
        "largest_timestamp": time,
        "mtime": time,
        "active": active,
        "tiered": False,
        "problem": None,
    }
    return plain | more


ROWS = [
    row(1, T0, 0, 100, 10),
    row(1, T0, 10, 100, 30),
    row(1, T0, 20, 50, 40, active=True),
    row(1, T1, 0, 100, 20),
    row(1, T1, 10, 30, 50, active=True),
    row(2, T0, 0, 100, 10, next_offset=15),
    row(2, T0, 15, 150, 40, active=True),
]


def view(rows: list[dict] = ROWS, incomplete: dict | None = None) -> InventoryView:
    table = pa.Table.from_pylist(rows, schema=schema())
    for name in ("dir", "topic", "topic_id"):
        table = table.set_column(table.schema.get_field_index(name), name, table.column(name).dictionary_encode())
    return InventoryView(Inventory((InventoryFile("a.parquet", 1, "cluster-1", NOW, ()),), table, incomplete or {}))


def facts(tp: TopicPartition, start: int = 0, end: int = 30) -> PartitionFacts:
    return Log(start, [NOW] * (end - start)).facts(Settings(), topic())._replace(partition=tp.partition)


def tails(found: InventoryView, chosen: Settings, **leaders: int | None) -> list[Maybe[Tail]]:
    """Return the only bound of T0, and that of T1."""
    led = {T0: leaders.get("t0", 1), T1: leaders.get("t1", 1)}
    bounds = found.tails({T0: facts(T0), T1: facts(T1, end=20)}, {"orders": chosen}, led, IDS)
    return [one for tp in (T0, T1) for one in bounds[tp].values()]


def test_segment_bases_are_those_of_the_leaders_replica() -> None:
    assert (view().bases({T0: 1, T1: 1}, IDS), view().bases({T0: 2}, IDS)) == (
        {T0: [0, 10, 20], T1: [0, 10]},
        {T0: [0, 15]},
    )


@pytest.mark.parametrize("other", ["id-0", "id-2", None])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_replica_of_two_topic_ids_has_none(other: str | None, at: int) -> None:
    assert [
        one.topic_id
        for one in view([one | {"topic_id": other} if n == at else one for n, one in enumerate(ROWS)]).replicas({})
    ] == [None, "id-1", "id-1"]


def test_bases_of_an_unread_replica_or_another_topic_are_unknown() -> None:
    assert "an index is broken" in why(
        view(incomplete={(1, "orders", 0): "an index is broken"}).bases({T0: 1, T1: 1}, IDS)[T0]
    )
    for topic_id in ("id-2", None):
        assert all(
            isinstance(one, Unknown)
            for one in view([one | {"topic_id": topic_id} for one in ROWS]).bases({T0: 1, T1: 1}, IDS).values()
        )


@pytest.mark.parametrize(
    ("chosen", "leaders", "expected"),
    [
        pytest.param(Settings(max_bytes=150), {}, [10, 0], id="closed segments that are not needed"),
        pytest.param(Settings(max_bytes=149), {}, [20, 0], id="one byte less"),
        pytest.param(Settings(max_bytes=150), {"t0": 2}, [15, 0], id="another leader"),
        pytest.param(Settings(max_bytes=1), {"t0": None}, [None, 10], id="no leader"),
        pytest.param(Settings(max_topic_bytes=300), {}, [10, 0], id="the oldest segments of the topic"),
        pytest.param(Settings(max_topic_bytes=200), {}, [10, 10], id="of both partitions"),
        pytest.param(Settings(max_topic_bytes=300), {"t1": 3}, [None, None], id="one unknown partition holds all"),
    ],
)
def test_size_tail_is_counted_by_the_leaders_log_bytes(
    chosen: Settings, leaders: dict[str, int | None], expected: list[int | None]
) -> None:
    """R5: ``log_bytes``, as brokers count a partition's size; indexes are not in it."""
    found = [None if isinstance(one, Unknown) else one for one in tails(view(), chosen, **leaders)]
    assert found == [None if offset is None else Tail(offset, exact=True) for offset in expected]


@pytest.mark.parametrize(
    ("undated", "most", "expected"),
    [
        pytest.param(0, 300, None, id="the other's younger segment would go in its place"),
        pytest.param(0, 400, [0, 0], id="all fits"),
        pytest.param(3, 200, None, id="in the other partition"),
        pytest.param(1, 300, [10, 0], id="behind what goes"),
        pytest.param(1, 200, None, id="behind what goes, and before what goes of the other"),
    ],
)
def test_topic_with_a_segment_without_a_time_is_trimmed_only_of_what_is_older_for_certain(
    undated: int, most: int, expected: list[int] | None
) -> None:
    """R5."""
    rows = [one | {"largest_timestamp": None} if n == undated else one for n, one in enumerate(ROWS)]
    found = tails(view(rows), Settings(max_topic_bytes=most))
    if expected is None:
        assert ["how old its records from" in why(one) for one in found] == [True, True]
    else:
        assert found == [Tail(offset, exact=True) for offset in expected]


def test_inventory_of_another_cluster_is_refused() -> None:
    view().inventory.check_cluster("cluster-1")
    assert "cluster-2" in refusal(InventoryError, view().inventory.check_cluster, "cluster-2")


@pytest.mark.parametrize(
    ("trim", "leader", "told"),
    [
        ((0, 10), 1, (100, True)),
        ((0, 20), 1, (200, True)),
        ((10, 20), 1, (100, True)),
        ((0, 15), 1, (150, False)),  # a segment that is cut counts by its offsets
        ((3, 20), 1, (170, False)),
        ((4, 6), 1, (20, False)),
        ((0, 31), 1, None),  # written after the scan
        ((0, 15), 2, (100, True)),
        ((0, 10), 3, None),
        ((0, 10), None, None),
    ],
)
def test_trimmed_bytes_are_those_of_the_leaders_log(
    trim: tuple[int, int], leader: int | None, told: tuple[int, bool] | None
) -> None:
    assert view().log_bytes({T0: trim}, {T0: leader}, IDS).get(T0) == told


def test_trimmed_bytes_are_unknown_for_a_broken_replica_or_another_topic() -> None:
    assert (
        view(incomplete={(1, "orders", 0): "broken"}).log_bytes({T0: (0, 10)}, {T0: 1}, IDS),
        view().log_bytes({T0: (0, 10)}, {T0: 1}, {T0: "id-2"}),
    ) == ({}, {})
    open_end = [one | {"next_offset": None} if one["active"] else one for one in ROWS]
    assert view(open_end).log_bytes({T0: (0, 20), T1: (0, 15)}, {T0: 1, T1: 1}, IDS) == {T0: (200, True)}


UNSORTED = (
    (2, "/b", "orders", 1, 0, 10, 5, 100, False),
    (1, "/a", "orders", 10, 0, 10, 6, None, True),
    (1, "/b", "billing", 0, 0, None, 7, 300, False),
    (1, "/a", "orders", 1, 10, 20, 8, 400, False),
)


def encoded(*rows: tuple[Any, ...]) -> InventoryView:
    return view_of(
        [
            (broker, path, TopicPartition(topic, number), "id", base, following, size, size, time, active, None)
            for broker, path, topic, number, base, following, size, time, active in rows
        ]
    )


def test_segments_are_numbered_in_sorted_order_and_what_is_unknown_of_one_is_marked() -> None:
    """R6 breaks ties by (topic, partition): the numbers must stand in that order, 10 behind 9."""
    found = encoded(*UNSORTED)
    segments = found.segments
    assert (segments.largest_timestamp.tolist(), segments.next_offset.tolist(), segments.active.tolist()) == (
        [100, UNDATED, 300, 400],
        [10, 10, NO_END, 20],
        [False, True, False, False],
    )
    assert (
        [str(found.partitions[n]) for n in found.segments.partition.tolist()],
        list(found.partitions),
        [found.dirs[n] for n in found.segments.disk.tolist()],
    ) == (
        ["orders-1", "orders-10", "billing-0", "orders-1"],
        sorted(found.partitions),
        [(2, "/b"), (1, "/a"), (1, "/b"), (1, "/a")],
    )


# -- an inventory is believed only as far as the cluster bears it out (R6) --


MIB = 1 << 20
TP = TopicPartition("orders", 0)
FACTS = Log(10, [0] * 90).facts(Settings(), topic(TP.topic))
ID: Any = FACTS.topic.topic_id
GOOD = ScannedReplica(1, "/a", TP, ID, 1, 80, 0, 80, 100, 10 * MIB, 8 * MIB, MIB // 2, 0, 0, 5)
TODAY = FACTS._replace(leader_epoch=5)


@pytest.mark.parametrize(
    ("one", "size"),
    [
        (GOOD, 17 * MIB // 2),
        (GOOD, 10 * MIB),
        (GOOD, None),
        # half of what the log has by now, in offsets as in bytes: the rest was written since the scan
        (GOOD._replace(end=50, last_base=40, active_base=40), 20 * MIB),
    ],
)
def test_inventory_that_fits_the_cluster_is_trusted(one: ScannedReplica, size: int | None) -> None:
    assert doubt(one, FACTS, size) is None


@pytest.mark.parametrize(
    ("one", "size", "said"),
    [
        (GOOD._replace(topic_id="another"), 10 * MIB, "scanned before the topic was recreated"),
        (GOOD._replace(topic_id=None), 10 * MIB, "no topic id"),
        (GOOD._replace(actives=0, active_base=-1), 10 * MIB, "no active segment"),
        (GOOD._replace(actives=2), 10 * MIB, "more than one active"),
        (GOOD._replace(active_base=60), 10 * MIB, "behind the active"),
        (GOOD._replace(last_base=101, active_base=101), 10 * MIB, "reach offset 101"),
        (GOOD, -1, "no longer in /a"),
        (GOOD, 7 * MIB, "its broker says 7.00 MiB in all"),
        (GOOD._replace(log_bytes=9, live_bytes=5, active_bytes=2), 10 * MIB, "more than was written since"),
        (GOOD, 8 * MIB, "its broker says 8.00 MiB in all"),
        (GOOD._replace(end=-1), 8 * MIB, "its broker says 8.00 MiB in all"),
        (GOOD._replace(first_base=11), 10 * MIB, "begin at offset 11, but its log at 10"),
    ],
)
def test_inventory_that_contradicts_the_cluster_is_doubted(one: ScannedReplica, size: int, said: str) -> None:
    says(known(doubt(one, FACTS, size)), said, "scan again")


def test_replica_created_after_the_scan_is_doubted_unless_unmanaged() -> None:
    disks = [Disk(n, ("/a",), Room(100, 50, 50), {TP: 10 * MIB}) for n in (1, 2)]
    other = ScannedReplica(2, "/a", TopicPartition("other", 0), "x", 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, None)
    assert set(doubts_of([GOOD, other], disks, {TP: TODAY}, {})) == {(2, "orders", 0)}
    assert doubts_of([GOOD], disks, {TP: TODAY}, {}) == {}, "nothing was scanned on broker 2"
    assert doubts_of([GOOD], [Disk(1, ("/a",), Unknown.because("disk", "offline"), {})], {TP: TODAY}, {}) == {}


@pytest.mark.parametrize(
    ("one", "now", "end", "said"),
    [
        (GOOD, 5, None, ""),
        (GOOD, 7, Found(100), ""),
        (GOOD, 7, Found(120), ""),
        (GOOD, 7, Found(99), "leader epoch 5 now ends at 99, but the scan reached 100"),
        (GOOD, 7, None, "of the scan ends: scan again"),
        (GOOD, 7, RequestFailedError("timed out", retriable=True), "of the scan ends (timed out)"),
        (GOOD, 7, NotFound(), "no longer has: the log was cut"),
        (GOOD, None, Found(99), "ends at 99"),
        (GOOD, 4, None, "under leader epoch 5, which this log never had"),
        (GOOD._replace(leader_epoch=None), 0, None, ""),
        (GOOD._replace(leader_epoch=None), 1, None, "does not say under which leader epoch"),
        (GOOD._replace(leader_epoch=None), None, None, "does not say under which leader epoch"),
    ],
)
def test_replica_truncated_since_the_scan_is_doubted(
    one: ScannedReplica, now: int | None, end: Answer | None, said: str
) -> None:
    """A log that was cut and has grown again has the same offsets, and other records (M1)."""
    disks = [Disk(1, ("/a",), Room(100, 50, 50), {TP: 10 * MIB})]
    found = doubts_of([one], disks, {TP: FACTS._replace(leader_epoch=now)}, {} if end is None else {(TP, 5): end})
    assert found.keys() == ({(1, "orders", 0)} if said else set())
    assert all(said in text and "scan again" in text for text in found.values())
