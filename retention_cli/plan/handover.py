"""A plan as bytes: made in one process, taken up in another, which unpickles nothing.

Its rows are Parquet (:func:`retention_cli.plan.rows.as_parquet`), the rest is JSON that is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from pydantic import TypeAdapter

from retention_cli.core.model import TopicPartition
from retention_cli.disks.disk import DiskOutcome, Space
from retention_cli.plan.rows import decisions_in
from retention_cli.plan.value import Plan


def head_of(plan: Plan) -> str:
    """Return a plan without its rows."""
    return _heads().dump_json(_Head.of(plan)).decode()


def plan_in(head: str, rows: bytes, bootstrap: str, plans: int) -> Plan:
    """Return the plan of a cluster that is reached at ``bootstrap``. It is one of so many ``plans``.

    Raises:
        ValueError: it is no plan, or rows are missing.
        ArrowException: the rows can't be read.
    """
    plan, decisions = _heads().validate_json(head).plan_without_rows(), decisions_in([rows], plans)
    if plan.totals.partitions != len(decisions):
        raise ValueError("rows are missing")
    return replace(plan, bootstrap=bootstrap, topics=tuple(plan.topics), decisions=decisions)


@dataclass(frozen=True, slots=True)
class _Head:
    """A plan without its rows. JSON has no keys that are partitions: ``replicas`` are those of each of its disks."""

    plan: Plan
    replicas: Sequence[Sequence[tuple[str, int, int]]]

    @classmethod
    def of(cls, plan: Plan) -> _Head:
        replicas = [[(*tp, size_bytes) for tp, size_bytes in one.disk.replicas.items()] for one in plan.disks]
        disks = [replace(one, disk=replace(one.disk, replicas={})) for one in plan.disks]
        return cls(replace(plan, decisions=(), counted=plan.totals, disks=disks), replicas)

    def plan_without_rows(self) -> Plan:
        disks = []
        for one, rows in zip(self.plan.disks, self.replicas, strict=True):
            replicas = {TopicPartition(topic, number): size_bytes for topic, number, size_bytes in rows}
            disks.append(replace(one, disk=replace(one.disk, replicas=replicas)))
        return replace(self.plan, disks=disks)


@cache
def _heads() -> TypeAdapter[_Head]:
    heads: TypeAdapter[_Head] = TypeAdapter(_Head)
    heads.rebuild(_types_namespace={"DiskOutcome": DiskOutcome, "Space": Space})
    return heads
