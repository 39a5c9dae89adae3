"""Plans for the HTML page, with disks and hostile names."""

from __future__ import annotations

from retention_cli.core.model import Decision, Reason
from retention_cli.memory.disk import Look
from retention_cli.plan.value import Plan

HOSTILE = (
    "</style></title><script>alert(1)</script><img src=x onerror=alert(1)><svg onload=alert(1)>"
    "\"'`--><!--]]>&amp;&#60;$\\bad{^\x1b[2J\x07\u202egpj.exe\u200b\u2028\ud800\x00\ufffe"
)


DISKS = {"1:/data": [Look(1_795_000_000_000 + n * 3_600_000, 10**9 * n, 10**11) for n in range(20)]}


def row(topic: str = "orders", partition: int = 0, by: str | None = "group:billing", text: str = "why") -> Decision:
    return Decision(
        topic=topic,
        topic_id="id",
        partition=partition,
        action="trim",
        log_start=0,
        high_watermark=100,
        last_stable_offset=100,
        min_commit=60 if by else None,
        min_commit_by=by,
        trim_to=60,
        records=60,
        size_bytes=600,
        unconsumed=0,
        rule="consumed",
        limited_by=None,
        reasons=(Reason("F5", text),),
    )


def plan(*rows: Decision, source: str = "policy.yaml", cluster: str = "cluster") -> Plan:
    return Plan(1_795_000_000_000, cluster, "broker:9092", source, "sha256:1", {}, (), rows)
