"""What a trim on real brokers leaves behind is proven, and a changed byte is named (docs/evidence.md)."""

from __future__ import annotations

import json

from retention_cli.evidence.files import read
from tests.support.trims import read_topic
from tests.support.world import World, consumed


def test_trim_leaves_evidence_that_verify_accepts_and_a_changed_byte_is_named(world: World) -> None:
    topic = read_topic(world, 2, {0: 7, 1: 10})
    report = world.trim(world.plan(consumed(topic)), consumed(topic))
    (run,) = world.state_dir.glob(f"*/evidence/{report.run}")
    evidence = read(run)
    assert {(one.facts.tp.partition, one.said.trim_to) for one in evidence.rows()} == {(0, 7), (1, 10)}
    assert [(one.by, one.offset) for one in evidence.rechecks[0].commits.of_row(0)] == [(f"group:{topic}-group", 7)]
    sent = [one.sent_ms for one in evidence.results or () if one.outcome == "trimmed"]
    assert len(sent) == 2
    assert all(sent)
    assert "proven" in world.cli("verify", report.run, check=0).out
    path = run / "001-facts.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    told = json.loads(world.cli("verify", report.run, "-o", "json", check=1).out)
    assert any("001-facts.parquet" in one["where"] for one in told["runs"][0]["findings"])
