"""Nothing lost: what a policy wants archived is in the archive, record for record, before it is trimmed."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retention_cli.archive import segment, store
from retention_cli.archive.layout import Source
from retention_cli.archive.store import Store
from retention_cli.archive.writer import PartitionArchiver, archive_range
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.records import Range, Record, read_complete
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.extras import MissingPartError
from retention_cli.core.model import TopicPartition
from retention_cli.trim.report import TrimRow
from tests.support.archives import (
    archive,
    archived,
    filled,
    flipped,
    killed_at,
    odd_flights,
    policy,
    produce,
    small,
    whole,
    whole_and_tidy,
)
from tests.support.plain import after
from tests.support.says import says
from tests.support.trims import audit, only
from tests.support.world import World, reader_for, run_cli, written


def trim(world: World, topic: str, place: Path) -> TrimRow:
    """Plan and trim by a policy that wants the topic archived; return its row."""
    text = policy(topic, place)
    return only(world.trim(world.plan(text), text))


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != "_groups"
    }


def manifests(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.json") if path.parent.name != "_groups"]


@pytest.fixture
def topic(world: World) -> str:
    """1,200 odd records in one partition, all of them read."""
    return filled(world)


def recreate(world: World, topic: str) -> None:
    world.renew(topic)
    produce(world, topic, odd_flights(1_200))
    world.commit(f"{topic}-g", topic, 1_200)


@pytest.mark.parametrize(
    ("change", "hold", "said"),
    [
        pytest.param(lambda _world, _topic: None, "", "", id="nothing"),
        pytest.param(recreate, "", "recreated", id="recreated"),
        pytest.param(lambda world, topic: world.commit(f"{topic}-g", topic, 3), "", "went back to 3", id="group back"),
        pytest.param(lambda _world, _topic: None, '"case 4711"', "case 4711", id="policy holds"),
        pytest.param(lambda world, topic: world.delete_records(topic, 700), "", "", id="trimmed by another"),
    ],
)
def test_changes_during_archiving_are_seen_by_the_recheck(
    world: World,
    topic: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[World, str], object],
    hold: str,
    said: str,
) -> None:
    """Archiving takes minutes; the recheck comes after it."""
    texts = [policy(topic, place)]

    def change_both() -> None:
        change(world, topic)
        texts.append(policy(topic, place, **({"hold": hold} if hold else {})))

    after(monkeypatch, PartitionArchiver, "copy", change_both)
    made = world.plan(texts[0])
    world.commit(f"{topic}-new", topic, 1_200)  # this trim alone has seen it: its memory has something to save
    got = only(world.trim(made, lambda: texts[-1]))
    if said:
        assert (got.outcome, world.ends(topic), said in got.reasons[0].text) == ("held", (0, 1_200), True)
    else:
        assert (got.outcome, got.log_start) == ("trimmed", 1_200)
    assert len(archived(place, topic)) == 1_200


def delete_manifests(place: Path) -> None:
    for path in manifests(place):
        path.unlink()


@pytest.mark.parametrize(
    ("owner", "method", "act", "said"),
    [
        (ClusterReader, "read_complete", lambda world, topic, _: world.renew(topic), "recreated"),
        (PartitionArchiver, "copy", lambda _world, _topic, place: delete_manifests(place), "was archived, and is held"),
    ],
    ids=["the topic is recreated while it is read", "segments are deleted after they were written"],
)
def test_records_that_the_archive_does_not_have_before_the_trim_hold(
    world: World,
    topic: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
    act: Callable[[World, str, Path], None],
    said: str,
) -> None:
    after(monkeypatch, owner, method, lambda: act(world, topic, place))
    got = trim(world, topic, place)
    assert said in got.reasons[0].text
    assert (got.outcome, manifests(place), world.ends(topic)[0]) == ("held", [], 0)


def test_records_deleted_before_archiving_are_reported_and_the_rest_archived(
    world: World, topic: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers' own retention does not wait for us."""
    before = whole(world, topic)
    honest = ClusterReader.read_complete
    calls: list[int] = []

    def late(self, tp, span, on_record):
        calls.append(span.start)
        if len(calls) == 1:
            world.delete_records(topic, 400)
        return honest(self, tp, span, on_record)

    monkeypatch.setattr(ClusterReader, "read_complete", late)
    assert (trim(world, topic, place).outcome, calls) == ("trimmed", [0, 400])
    assert archived(place, topic) == before[400:]
    assert "from 0 to 400 are not archived" in audit(world)[1]["partitions"][0]["notes"][0]


def test_records_deleted_during_archiving_are_not_reported_as_archived(
    world: World, topic: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an election the log may begin before it again (M3): a trim must not take that for archived, too."""
    honest = ClusterReader.read_complete

    def late(self, tp, span, on_record):
        if span.start == 0:
            honest(self, tp, span._replace(end=100), on_record)
            world.delete_records(topic, 400)
            return RequestFailedError("OFFSET_OUT_OF_RANGE", retriable=True)
        return honest(self, tp, span, on_record)

    monkeypatch.setattr(ClusterReader, "read_complete", late)
    with reader_for(world.bootstrap) as reader:
        cluster = reader.metadata([topic])
        source = Source(cluster.cluster_id, topic, cluster.topics[topic].topic_id or "", 0)
        found = archive_range(reader, Store(str(place)), source, 1_200, lambda: "now")
    assert [(one.start, one.end) for one in found.segments] == [(0, 100), (400, 1_200)]
    assert (found.start, found.end) == (400, 1_200)


def _short(honest: Any) -> Any:
    return lambda self, tp, span, on_record: honest(self, tp, span._replace(end=span.end - 1), on_record)


def _careless(honest: Any) -> Any:
    return lambda records, source: honest([one._replace(headers=one.headers[:1]) for one in records], source)


def _missing(_honest: Any) -> Any:
    def arrow(*_: object) -> None:
        raise MissingPartError("Parquet needs pyarrow: pip install 'kretain[parquet]'")

    return arrow


@pytest.mark.parametrize(
    ("broken", "how", "said", "segments"),
    [
        ((ClusterReader, "read_complete"), _short, "read to 1,199", 1),
        ((segment, "as_batch"), _careless, "checksum", 0),
        ((store, "arrow"), _missing, "pip install", 0),
    ],
    ids=["a log that ends before the target", "a writer that drops a header", "no pyarrow"],
)
def test_partition_that_is_not_archived_completely_holds(
    world: World,
    topic: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: tuple[Any, str],
    how: Any,
    said: str,
    segments: int,
) -> None:
    monkeypatch.setattr(*broken, how(getattr(*broken)))
    got = trim(world, topic, place)
    assert said in got.reasons[0].text
    assert (got.outcome, len(manifests(place)), world.ends(topic)) == ("held", segments, (0, 1_200))


# -- archives that can't be written --------------------------------------------


def test_unwritable_archive_holds_its_topic_and_no_other(world: World, topic: str, tmp_path: Path) -> None:
    blocked = written(tmp_path / "blocked", "a file where a folder should be")
    other = filled(world, records=10)
    text = policy(topic, blocked / "archive") + "\n" + "\n".join(policy(other, tmp_path / "fine").splitlines()[2:])
    rows = {one.tp.topic: one for one in world.trim(world.plan(text), text).rows}
    assert (rows[other].outcome, rows[topic].outcome) == ("trimmed", "held")
    says(rows[topic].reasons[0].text, f"{topic}-0", str(blocked / "archive"), "Not a directory", "run again")
    assert (rows[topic].reasons[0].code, world.ends(topic)) == ("archive", (0, 1_200))


# -- damage ---------------------------------------------------------------------


@pytest.mark.parametrize("what", ["*.parquet", "*.json"])
def test_damaged_archive_is_written_again_from_the_log(
    world: World, topic: str, place: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It was archived, then damaged, and the records are still there: the trim reads before it believes."""
    before = whole(world, topic)
    archive(world, topic, place)
    flipped(min(place.rglob(what)))
    assert not whole_and_tidy(place)
    small(monkeypatch)
    assert (trim(world, topic, place).outcome, archived(place, topic)) == ("trimmed", before)
    assert whole_and_tidy(place)


# -- kills ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "number"),
    [
        pytest.param("in-file", 3, marks=pytest.mark.thorough),
        pytest.param("after-file", 2, marks=pytest.mark.thorough),
        pytest.param("in-manifest", 1, marks=pytest.mark.long),
        pytest.param("after-manifest", 1, marks=pytest.mark.long),
        ("after-manifest", 3),
        pytest.param("before-delete", 1, marks=pytest.mark.long),
        pytest.param("after-delete", 1, marks=pytest.mark.long),
    ],
)
def test_trim_killed_at_any_step_loses_and_duplicates_nothing_when_run_again(
    world: World, topic: str, place: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    """SIGKILL; segments of 500 records, so that there are three."""
    before = whole(world, topic)
    file = written(world.state_dir.parent / "p.yaml", policy(topic, place))
    killed_at(world, step, number, "trim", "--yes", "-p", str(file))
    assert world.ends(topic)[0] == (1_200 if step == "after-delete" else 0)
    counted = {path: content for path, content in files(place).items() if path.endswith(".json")}
    small(monkeypatch)
    got = trim(world, topic, place)
    assert (got.outcome, got.log_start) == ("unchanged" if step == "after-delete" else "trimmed", 1_200)
    assert archived(place, topic) == before
    assert counted.items() <= files(place).items(), "what counted is not written again"
    assert whole_and_tidy(place)


# -- compaction -------------------------------------------------------------------


def test_compacted_archive_is_accepted_by_the_next_trim(world: World, topic: str, place: Path) -> None:
    """12 segments become one, by the command; a trim then writes nothing anew, and a damaged one is left alone."""
    before = whole(world, topic)
    archive(world, topic, place, segment=100)
    assert len(files(place)) == 24
    assert "12 small segments would become 1." in world.cli("archive", "compact", f"{place}/", "--dry-run", check=0).out
    says(world.cli("archive", "compact", f"{place}/", topic, check=6).err, "pass --yes to compact; nothing was changed")
    assert len(files(place)) == 24
    [row_] = world.cli("archive", "compact", f"{place}/", topic, "--yes", "-o", "json", check=0).json()["partitions"]
    assert (row_["segments"], row_["joined"], row_["into"], row_["problems"]) == (12, 12, 1, [])
    joined = files(place)
    assert (len(joined), whole_and_tidy(place), archived(place, topic)) == (2, True, before)
    assert "Nothing to merge." in world.cli("archive", "compact", f"{place}/", "--yes", check=0).out
    assert (trim(world, topic, place).outcome, world.ends(topic)[0]) == ("trimmed", 1_200)
    assert files(place) == joined, "it was believed, so nothing was written again"


def test_slow_use_of_records_is_not_taken_for_a_silent_broker(
    world: World, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing a segment to a slow archive may take longer than a broker may keep silent."""
    monkeypatch.setattr("retention_cli.brokers.records.MESSAGES_AT_ONCE", 100)
    read: list[int] = []

    def on_record(record: Record) -> None:
        if not read:
            time.sleep(1.5)
        read.append(record.offset)

    reached = read_complete(
        ConnectionSettings(world.bootstrap), TopicPartition(topic, 0), Range(0, 1_200), 1.0, on_record
    )
    assert (reached, read) == (1_200, list(range(1_200)))


@pytest.mark.thorough
def test_encrypted_archive_comes_back_by_its_keys_alone(world: World, tmp_path: Path) -> None:
    """After a rotation, too: the first key encrypts, and all of them decrypt."""
    topic, place = world.topic("sealed"), tmp_path / "archive"
    produce(world, topic, odd_flights(400))
    before = whole(world, topic)
    for name in ("one.key", "two.key"):
        (tmp_path / name).write_bytes(base64.b64encode(os.urandom(32)))
    file, newer = tmp_path / "policy.yaml", ("--archive-key", str(tmp_path / "two.key"))

    def trim(read: int, names: str) -> dict[str, object]:
        file.write_text(f"archive.key: {names}\n{policy(topic, place)}")
        world.commit(f"{topic}-g", topic, read)
        (row,) = world.cli("trim", "-p", str(file), "--yes", "-o", "json", check=0).json()["partitions"]
        return row

    assert trim(100, "one.key")["outcome"] == "trimmed"
    (first,) = place.rglob("*.parquet")
    stored = first.read_bytes()
    assert (stored[:8], b"carrier" in stored) == (b"KRETAIN1", False)
    assert trim(200, "[two.key, one.key]")["outcome"] == "trimmed"
    assert len({one.read_bytes()[8:16] for one in place.rglob("*.parquet")}) == 2
    gone = run_cli("archive", "verify", str(place), topic, *newer, check=1)
    assert "is encrypted with the key of id" in gone.err
    assert len(gone.err.strip().splitlines()) <= 2
    run_cli("archive", "verify", "-p", str(file), topic, check=0)
    target = world.topic("opened", retention_ms="-1")
    arguments = ("restore", topic, "--to", target, "--groups", "--yes")
    world.cli(*arguments, "--from", str(place), *newer, check=5)
    assert whole(world, target) == []
    world.cli(*arguments, "-p", str(file), check=0)
    assert whole(world, target) == before[:200]
