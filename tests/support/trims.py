"""What a trim reports, and what its audit log holds."""

from __future__ import annotations

import json

from retention_cli.trim.report import TrimReport, TrimRow
from tests.support.world import HOUR, World

OLD = [30 * HOUR] * 10


def only(report: TrimReport) -> TrimRow:
    assert len(report.rows) == 1
    return report.rows[0]


def audit(world: World) -> list[dict]:
    log = next(world.state_dir.glob("*/audit.jsonl"))
    return [json.loads(line) for line in log.read_text().splitlines()]
