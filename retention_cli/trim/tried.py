"""Record a plan as evidence, so that a policy can be tried before its first delete (docs/replay.md)."""

from __future__ import annotations

from pathlib import Path

from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.state_dir import StateError, cluster_folder
from retention_cli.evidence.writer import recorder_for
from retention_cli.plan.make import PlanInputs
from retention_cli.trim.evidenced import rows_of
from retention_cli.trim.journal import new_run_name
from retention_cli.trim.recheck import Recheck


def record_plan(
    inputs: PlanInputs, reader: ClusterReader, now_ms: int, state_dir: Path, url: str | None, *, inventory: bool
) -> str:
    """Write the evidence of a plan, which then has a run's name; return the name.

    It is in no audit log: nothing was trimmed, and its files say so.

    Args:
        inputs: what the plan was made of, with what groups have committed.
        reader: the cluster that was read.
        now_ms: the time that was decided for.
        state_dir: where evidence is, if the policy says nothing.
        url: the policy's ``evidence``.
        inventory: whether sizes are by an inventory.

    Raises:
        StateError: it can't be written, or the policy wants none.
    """
    seen = inputs.observation
    run = new_run_name(now_ms)
    folder = cluster_folder(state_dir, seen.cluster_id)
    head = {"run": run, "cluster": seen.cluster_id, "inventory": inventory, "plan": True}
    recorder = recorder_for(url, folder, head, lambda _file, _rows, _digest: None)
    if recorder is None:
        raise StateError("--evidence: the policy says evidence: none, or pyarrow is missing (kretain[parquet])")
    zero_ms = reader.clock.wall_ms() - 1000 * reader.clock.since_boot()
    decisions = {one.tp: one for one in inputs.decisions}
    began = min(seen.began, (now_ms - zero_ms) / 1000)
    fresh = Recheck(
        began, seen, decisions, seen.leaders, {}, now_ms=now_ms, zero_ms=zero_ms, disk_parts=inputs.disk_parts
    )
    recorder.facts(rows_of(1, fresh, decisions, decisions.keys()), seen)
    return run
