"""What must be archived goes no further than it is: the gate between a recheck and its deletes, and what it is told."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from retention_cli.archive.catalog import stitched
from retention_cli.archive.layout import ArchiveError, Manifest, Source
from retention_cli.archive.positions import Positions
from retention_cli.archive.writer import Archived, Archiver
from retention_cli.audit.log import AuditLog
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, NotFound
from retention_cli.brokers.metadata import PartitionMetadata
from retention_cli.core.model import Decision, Reason, TopicPartition
from retention_cli.core.progress import silent
from retention_cli.core.state_dir import StateError
from retention_cli.observe.lineage import other_log
from retention_cli.plan.reconcile import Target
from retention_cli.trim.archive_gate import ArchivedFirst, rehearsed
from retention_cli.trim.journal import AuditJournal
from retention_cli.trim.recheck import Recheck
from tests.support.archives import SOURCE, sample, written
from tests.support.audit_logs import BEGUN
from tests.support.evidence import observation
from tests.support.says import says

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("free", 0)
URL = "s3://bucket/kafka"
OLD, NEW = os.urandom(32), os.urandom(32)


def decision(tp: TopicPartition = TP, start: int | None = 10, to: int = 100, topic_id: str = "A") -> Decision:
    return Decision(
        tp.topic, topic_id, tp.partition, "trim", start, 200, 200, 150, "group:g", to, 90, 900, 0, "consumed", None, ()
    )


def target(offset: int = 100, **more) -> Target:
    return Target(offset, decision(to=offset, **more))


def fresh(archives: dict[str, str] | None = None) -> Recheck:
    return Recheck(0.0, observation([]), {}, {}, {}, {"orders": URL} if archives is None else archives)


class Copier(Archiver):
    """Copies by word alone; where consumers of a topic stood, it can't keep."""

    def __init__(self, copied: Archived | Reason | None, differing: Reason | None = None, unkept: str = "") -> None:
        self.copied, self.reason, self.unkept = copied, differing, unkept
        self.asked: list[list[TopicPartition]] = []

    def copy(self, wanted, progress):  # noqa: ARG002
        self.asked.append(list(wanted))
        return {} if self.copied is None else dict.fromkeys(wanted, self.copied)

    def differing(self, copied, leaders):  # noqa: ARG002
        return {} if self.reason is None else dict.fromkeys(copied, self.reason)

    def keep(self, url, positions):
        if positions.topic == self.unkept:
            raise ArchiveError(f"{url} can't be written: no space")


def copied(url: str = URL, topic_id: str = "A", start: int = 10, end: int = 100) -> Archived:
    source = Source("c", TP.topic, topic_id, TP.partition)
    return Archived(source, url, start, end, (Manifest(source, start, end, 1, "now", 0, 90),))


def after(gate: ArchivedFirst, first: Target, second: Target | None = None, url: str = URL):
    """Sort, copy what is not, and sort once more, as a trim's two rounds do."""
    gate.copy(gate.sort({TP: first}, fresh()).uncopied, silent)
    return gate.sort({TP: second or first}, fresh({"orders": url}))


def test_topic_without_an_archive_passes() -> None:
    sorted_ = ArchivedFirst(None).sort({TP: target()}, fresh({}))
    assert (sorted_.ready, sorted_.uncopied, sorted_.held) == ({TP: target()}, {}, {})


def test_missing_archiver_holds() -> None:
    gate = ArchivedFirst(None)
    sorted_ = gate.sort({TP: target(), OTHER: target()}, fresh())
    assert (list(sorted_.ready), sorted_.held[TP].reasons[0].code) == ([OTHER], "archive")
    gate.copy({TP: (URL, target())}, silent)
    assert list(gate.sort({TP: target()}, fresh()).held) == [TP]


def test_partition_is_copied_once_before_its_trim() -> None:
    copier = Copier(copied())
    gate = ArchivedFirst(copier)
    first = gate.sort({TP: target()}, fresh())
    assert (first.ready, first.held, first.uncopied) == ({}, {}, {TP: (URL, target())})
    assert after(gate, target()).ready == {TP: target()}
    assert copier.asked == [[TP]]


class Sealer(Archiver):
    """Copies 30 records, encrypted with the policy's key of that moment."""

    def copy(self, wanted, progress):  # noqa: ARG002
        url = next(iter(wanted.values()))[0]
        done = Archived(SOURCE, url, 0, 30, (written(self.store(url), sample()),))
        self.note(TP, done, log_start=30)  # of no log: only the key is looked at
        return {TP: done}


@pytest.mark.parametrize(
    ("now", "given_", "said"),
    [
        pytest.param(OLD, ["archive.key"], None, id="the same"),
        pytest.param(OLD, ["newer.key", "archive.key"], None, id="rotated"),
        pytest.param(NEW, ["archive.key"], "no file of archive.key has it", id="replaced"),
        pytest.param(OLD, ["newer.key"], "no file of archive.key has it", id="dropped"),
        pytest.param(None, ["archive.key"], "can't be read", id="lost"),
        pytest.param(OLD, [], "no file of archive.key has it", id="none"),
    ],
)
def test_copy_that_no_key_file_decrypts_any_longer_releases_nothing(
    tmp_path: Path, now: bytes | None, given_: list[str], said: str | None
) -> None:
    """The key may be replaced or lost between the copy and the delete: then the log has the only records to read."""
    key, url = tmp_path / "archive.key", str(tmp_path / "archive")
    key.write_bytes(OLD)
    reader: Any = SimpleNamespace(epoch_ends=lambda _wanted, _leaders: {})
    gate = ArchivedFirst(Sealer(reader, SOURCE.cluster_id))
    wanted = {TP: target(30, start=0, topic_id=SOURCE.topic_id)}
    seen = replace(fresh({"orders": url}), archive_keys=(str(key),))
    gate.copy(gate.sort(wanted, seen).uncopied, silent)
    (tmp_path / "newer.key").write_bytes(NEW)
    key.unlink()
    if now is not None:
        key.write_bytes(now)
    sorted_ = gate.sort(wanted, replace(seen, archive_keys=tuple(str(tmp_path / name) for name in given_)))
    assert sorted_.ready == (wanted if said is None else {})
    assert said is None or said in sorted_.held[TP].reasons[0].text


FULL, CUT = Reason("archive", "the disk is full"), Reason("archive", "the log was cut back")


@pytest.mark.parametrize(
    ("copier", "second", "url", "said"),
    [
        pytest.param(Copier(None), target(), URL, "", id="left out by the archiver"),
        pytest.param(Copier(FULL), target(), URL, FULL.text, id="it could not be copied"),
        pytest.param(Copier(copied(), CUT), target(), URL, CUT.text, id="the log differs from its copy"),
        (Copier(copied()), target(start=9), URL, "from 10 on, and its log starts at 9"),
        (Copier(copied()), target(start=None), URL, "an unknown offset"),
        (Copier(copied()), target(topic_id="B"), URL, "recreated"),
        (Copier(copied()), target(), "s3://elsewhere", "the policy now names s3://elsewhere"),
        (Copier(copied(url="s3://elsewhere")), target(), URL, "was archived to s3://elsewhere"),
        (Copier(copied(end=10)), target(), URL, "only up to 10,"),
    ],
)
def test_log_without_a_copy_of_its_own_records_releases_nothing(
    copier: Copier, second: Target, url: str, said: str
) -> None:
    sorted_ = after(ArchivedFirst(copier), target(), second, url)
    assert (sorted_.ready, list(sorted_.held)) == ({}, [TP])
    assert said in sorted_.held[TP].reasons[0].text


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(1, 50))
def test_trim_never_passes_the_end_of_the_copy(start: int, copied_from: int, end: int, wanted: int) -> None:
    sorted_ = after(ArchivedFirst(Copier(copied(start=copied_from, end=end))), target(start + wanted, start=start))
    for one in sorted_.ready.values():
        assert copied_from <= start < one.offset <= min(end, start + wanted)
    assert sorted_.ready or sorted_.held


def test_dry_run_names_what_would_be_archived() -> None:
    assert rehearsed(TP, target(), fresh())[0].text == (
        f"a trim would first archive offsets 10 to 100 to {URL}; a dry run archives nothing"
    )
    assert rehearsed(TP, target(), fresh({})) == ()


def test_audit_log_records_archived_ranges(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.append({**BEGUN, "run": "r"})
    AuditJournal(log, "r", lambda: 0).archived({TP: copied(), OTHER: Reason("archive", "the disk is full")})
    line = json.loads(log.path.read_text().splitlines()[1])
    assert (line["event"], line["partitions"]) == (
        "archive",
        [
            {"topic": "orders", "partition": 0, "topic_id": "A", "url": URL, "from": 10, "to": 100, "records": 90}
            | {"manifests": [copied().segments[0].path], "notes": []},
            {"topic": "free", "partition": 0, "reason": "the disk is full"},
        ],
    )
    assert list(log.runs()) == ["r"]


def test_unwritable_audit_log_ends_the_trim() -> None:
    def full(_) -> None:
        raise StateError("the disk is full")

    with pytest.raises(StateError):
        after(ArchivedFirst(Copier(copied()), full), target())


# -- is it still the same log? -----------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Found(100), None),
        (Found(50), None),
        (Found(49), "cut back"),
        (NotFound(), "does not know leader epoch 3"),
        (RequestFailedError("no answer", retriable=True), "run again"),
    ],
)
def test_archived_copy_counts_only_while_its_last_record_is_in_the_log(answer, said: str | None) -> None:
    """Offset 49 in leader epoch 3: the epoch must end behind it (KIP-101)."""

    def epoch_ends(wanted, _leaders):
        assert wanted == [(TP, 3)]
        return {(TP, 3): answer}

    reader: Any = SimpleNamespace(epoch_ends=epoch_ends)
    found = other_log(reader, {TP: [(49, 3)]}, {TP: PartitionMetadata(1, 5)})
    assert not found if said is None else said in found[TP]


# -- segments end to end -----------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=8))
def test_joined_segments_contain_each_offset_once(given_spans: list[tuple[int, int]]) -> None:
    source = Source("c", "t", "i", 0)
    segments = [Manifest(source, start, start + length, 1, "now", 0) for start, length in given_spans]
    pieces, gaps = stitched(segments)
    taken = [offset for piece in pieces for offset in range(piece.start, piece.end)]
    assert taken == sorted({offset for one in segments for offset in range(one.start, one.end)})
    for piece in pieces:
        assert piece.manifest.start <= piece.start < piece.end == piece.manifest.end
    missing = [offset for start, end in gaps for offset in range(start, end)]
    assert not segments or sorted([*taken, *missing]) == list(range(min(taken), max(taken) + 1))


def test_topic_whose_positions_cannot_be_kept_is_held_and_not_copied() -> None:
    """Where consumers stood is kept before anything is copied; another topic of the run goes on."""
    archiver, other = Copier(None, unkept="orders"), TopicPartition("kept", 0)
    gate = ArchivedFirst(
        archiver, positions=lambda topics: {name: Positions("C", name, "A", 0, (0,)) for name in topics}
    )
    gate.copy({TP: (URL, target()), other: (URL, Target(100, decision(other)))}, silent)
    assert archiver.asked == [[other]]
    says(gate.sort({TP: target()}, fresh()).held[TP].reasons[0].text, "orders-0 could not be archived", "no space")
