"""Topics to trim, deletes that go astray, and what a trim reports and writes down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from retention_cli.brokers.deleter import Deleter
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.trim.report import TrimReport, TrimRow
from tests.support.world import OLD, Cli, World


def read_topic(world: World, partitions: int = 1, upto: int | Mapping[int, int] = 7, **settings: Any) -> str:
    """Make a topic of ten old records a partition, which group ``TOPIC-group`` has read so far."""
    return world.filled(OLD, {"group": upto}, partitions, stem="watched", **settings)


def trimmed_with_evidence_at(world: World, url: str, file: Path) -> tuple[Cli, str]:
    """Trim 17 records of two partitions, with evidence at a URL alone; return what was said, and the cluster's URL."""
    topic = read_topic(world, 2, {0: 7, 1: 10})
    rule = "retention.commitoffset.enable: true, retention.commitoffset.ms: 1"
    file.write_text(f"version: 1\nevidence: '{url}'\ntopics:\n- {{match: {topic}, {rule}}}\n")
    trim = world.cli("trim", "-p", str(file), "--yes", "-o", "json", check=0)
    (log,) = world.state_dir.glob("*/audit.jsonl")
    assert not (log.parent / "evidence" / trim.json()["run"]).exists()
    place, mark, query = url.partition("?")
    return trim, f"{place}/{log.parent.name}{mark}{query}"


def no_answer(by_leader: Mapping[int, Any], on_outcome: Any, *, retriable: bool = True) -> None:
    """Have each delete of these time out."""
    for offsets in by_leader.values():
        for tp in offsets:
            on_outcome(tp, RequestFailedError("timed out", retriable=retriable))


def leave_unanswered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Send no delete: each counts as timed out. Return the offsets by leader of each, as they come."""
    asked: list[Any] = []

    def delete(_self: Deleter, by_leader: Any, on_outcome: Any, **_times: float) -> None:
        asked.append(by_leader)
        no_answer(by_leader, on_outcome)

    monkeypatch.setattr(Deleter, "delete", delete)
    return asked


def only(report: TrimReport) -> TrimRow:
    assert len(report.rows) == 1
    return report.rows[0]


def audit(world: World) -> list[dict[str, Any]]:
    """Return the audit log's lines, but those about evidence."""
    return audit_of(world.state_dir)


def audit_of(state: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for log in state.glob("*/audit.jsonl") for line in log.read_text().splitlines()]
    return [one for one in lines if one["event"] != "evidence"]
