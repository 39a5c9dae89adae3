"""Topics to trim, deletes that go astray, and what a trim reports and writes down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from retention_cli.brokers.deleter import Deleter
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.trim.report import TrimReport, TrimRow
from tests.support.world import HOUR, World

OLD = [30 * HOUR] * 10


def read_topic(world: World, partitions: int = 1, upto: int | Mapping[int, int] = 7, **settings: Any) -> str:
    """Make a topic of ten old records a partition, which group ``TOPIC-group`` has read so far."""
    topic = world.topic("watched", partitions=partitions, **settings)
    for partition in range(partitions):
        world.produce(topic, OLD, partition)
    read = dict.fromkeys(range(partitions), upto) if isinstance(upto, int) else upto
    world.commit(f"{topic}-group", topic, read)
    return topic


def leave_unanswered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Send no delete: each counts as timed out. Return the offsets by leader of each, as they come."""
    asked: list[Any] = []

    def delete(_self: Deleter, by_leader: Any, on_outcome: Any, **_times: float) -> None:
        asked.append(by_leader)
        for offsets in by_leader.values():
            for tp in offsets:
                on_outcome(tp, RequestFailedError("timed out", retriable=True))

    monkeypatch.setattr(Deleter, "delete", delete)
    return asked


def only(report: TrimReport) -> TrimRow:
    assert len(report.rows) == 1
    return report.rows[0]


def audit(world: World) -> list[dict]:
    """Return the audit log's lines, but those about evidence."""
    log = next(world.state_dir.glob("*/audit.jsonl"))
    lines = map(json.loads, log.read_text().splitlines())
    return [one for one in lines if one["event"] != "evidence"]
