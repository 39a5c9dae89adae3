"""Plans and decisions made by hand or drawn, of one cluster and of a fleet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from hypothesis import strategies as st

from retention_cli.core.model import Action, Code, Decision, Reason
from retention_cli.engines.fleet.plan import Failure, FleetPlan, FleetReport, fleet_heads, fleet_lines
from retention_cli.engines.fleet.saved import write_fleet
from retention_cli.plan.saved import HEAD_FILE
from retention_cli.plan.value import Plan, row_as_json, schema
from retention_cli.trim.report import TrimReport, TrimRow


def row(**more: Any) -> Decision:
    values: dict[str, Any] = {
        "topic": "orders",
        "topic_id": "id-1",
        "partition": 0,
        "action": "trim",
        "log_start": 0,
        "high_watermark": 100,
        "last_stable_offset": 100,
        "min_commit": 60,
        "min_commit_by": "group:a",
        "trim_to": 50,
        "records": 50,
        "size_bytes": 500,
        "unconsumed": 0,
        "rule": "consumed",
        "limited_by": None,
        "reasons": (),
        "leader_epoch": 3,
    }
    return Decision(**(values | more))


HOLD = row(action="hold", trim_to=None, records=0, rule=None, reasons=(Reason("G7", "on hold: x"),))


KEEP = row(action="keep", trim_to=None, records=0, rule=None, log_start=50)


SKIP = row(
    partition=4, action="skip", trim_to=None, records=0, size_bytes=0, rule=None, reasons=(Reason("G5", "compact"),)
)


def plan(*decisions: Decision, **more: Any) -> Plan:
    values: dict[str, Any] = {
        "created_at_ms": 1_795_230_000_000,
        "cluster_id": "c1",
        "bootstrap": "b:9092",
        "policy_source": "kretain.yaml",
        "policy_digest": "sha256:00",
        "flags": {},
        "topics": (),
        "decisions": decisions,
    }
    return Plan(**(values | more))


EVERY = plan(row(), row(partition=1, size_bytes=None), KEEP._replace(partition=2), HOLD._replace(partition=3), SKIP)


_REASONS = pa.field("reasons", pa.list_(pa.struct([("code", pa.string()), ("text", pa.string())])))


LOOSE = pa.schema([_REASONS if one.name == "reasons" else one.with_nullable(nullable=True) for one in schema()])
"""As writers have it who do not say what is never null; Spark is one of them."""


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


offsets = st.integers(0, 2**63 - 1)


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    """Any row that a plan can have."""
    action: Action = draw(st.sampled_from(["trim", "keep", "hold", "skip"]))
    start, target, end = sorted(draw(st.tuples(offsets, offsets, offsets)))
    trims = action == "trim"
    maybe = st.none() | offsets
    return Decision(
        topic=draw(words),
        topic_id=draw(words) if trims else draw(st.none() | words),
        partition=draw(st.integers(0, 2**31 - 1)),
        action=action,
        log_start=start if trims else draw(st.none() | st.just(start)),
        high_watermark=end if trims else draw(st.none() | st.just(end)),
        last_stable_offset=draw(maybe),
        min_commit=draw(maybe),
        min_commit_by=draw(st.none() | words),
        trim_to=target if trims else None,
        records=draw(offsets),
        size_bytes=draw(maybe),
        unconsumed=draw(offsets),
        rule=draw(st.sampled_from([None, "consumed", "event-time", "forced-age"])),
        limited_by=draw(st.sampled_from([None, Code.G1, Code.G2, Code.G9])),
        reasons=tuple(Reason(*pair) for pair in draw(st.lists(st.tuples(words, words), max_size=3))),
    )


plans = st.lists(decisions(), max_size=6, unique_by=lambda one: one.tp).map(
    lambda rows: plan(*sorted(rows, key=lambda one: one.tp), flags={"older-than": 5}, topics=("a*",))
)


def of_spark(folder: Path, head: dict[str, Any], *parts: list[tuple[str, Decision]]) -> Path:
    """Write what Spark does: parts whose columns may all be null, in any order, and the head beside them."""
    folder.mkdir()
    for number, rows in enumerate(parts):
        content = [{"cluster": cluster, **row_as_json(one)} for cluster, one in rows]
        pq.write_table(pa.Table.from_pylist(content, LOOSE), folder / f"part-{number:05}-c000.snappy.parquet")
    (folder / "_SUCCESS").write_bytes(b"")
    for hidden in (".part-00000.crc", ".part-00000.parquet", "_started.parquet"):
        (folder / hidden).write_bytes(b"no part")
    (folder / HEAD_FILE).write_text(json.dumps(head))
    return folder


EU = EVERY


US = plan(row(topic="clicks", unconsumed=7), HOLD._replace(topic="clicks", partition=1), cluster_id="c2")


DOWN = Failure("ap:9092 could not be reached within 1 s: connection refused")


FLEET = FleetPlan(EU.created_at_ms, "fleet.yaml", "sha256:f", {"eu": EU, "ap": DOWN, "us": US})


def saved(folder: Path, fleet: FleetPlan, kind: str) -> Path:
    path = folder / f"plan.{kind}"
    if kind == "json":
        path.write_text("".join(fleet_lines(fleet)), encoding="utf-8")
    elif kind == "parquet":
        write_fleet(path, fleet)
    else:
        rows = [(one.cluster_id, decision) for one in fleet.plans.values() for decision in one.decisions]
        of_spark(path, fleet_heads(fleet), rows[::2], rows[1::2])
    return path


KINDS = ("json", "parquet", "folder")


REPORT = FleetReport(
    "fleet.yaml",
    "sha256:f",
    {
        "eu": TrimReport("run-1", "c1", "b:9092", [TrimRow(EU.decisions[0].tp, "trimmed", 50, 50, (), 50, 500)]),
        "ap": DOWN,
        "us": TrimReport(
            "run-2", "c2", "b:9092", [TrimRow(US.decisions[0].tp, "held", reasons=(Reason("F3", "down"),))]
        ),
    },
)
