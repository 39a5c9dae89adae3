"""Audit logs made of events by hand, and ``kretain history`` over them."""

from __future__ import annotations

from typing import Any

from retention_cli.audit.log import AuditLog
from tests.support.world import Cli, run_cli

AT = "2026-11-21T03:00:00.000Z"


BEGUN: dict[str, Any] = {
    "event": "run",
    "run": "r1",
    "at": AT,
    "cluster": {"id": "c1", "bootstrap": "b"},
    "user": "u",
    "host": "h",
    "policy": {"source": "p", "digest": "d", "flags": {}},
    "planned": {"partitions": 2, "records": 30, "bytes": 300},
}


def batch(number: int, *partitions: int, at: str = AT, run: str = "r1") -> dict[str, Any]:
    rows = [
        {"topic": "t", "partition": n, "log_start": 0, "target": 10, "records": 10, "bytes": 100} for n in partitions
    ]
    return {"event": "batch", "run": run, "at": at, "batch": number, "partitions": rows}


def result(number: int, outcomes: dict[int, str], run: str = "r1") -> dict[str, Any]:
    rows = [{"topic": "t", "partition": n, "outcome": outcome, "log_start": 10} for n, outcome in outcomes.items()]
    return {"event": "result", "run": run, "at": AT, "batch": number, "partitions": rows}


END = {"event": "end", "at": AT, "exit": 0, "totals": {}}


def append(log: AuditLog, *events: dict[str, Any]) -> None:
    for event in events:
        log.append(event)


def append_bytes(log: AuditLog, content: bytes) -> None:
    """Write to the log's file what kretain did not."""
    with log.path.open("ab") as handle:
        handle.write(content)


def run(log: AuditLog, name: str, at: str = AT) -> None:
    """Write one run, 10 records trimmed, as a trim does: the file is closed first if it has a byte."""
    log.rotate(1)
    append(log, *(event | {"run": name, "at": at} for event in (BEGUN, batch(1, 0), result(1, {0: "trimmed"}), END)))


def history(log: AuditLog, *arguments: str, check: int = 0) -> Cli:
    """Run ``kretain history`` over all logs of the state directory."""
    return run_cli("history", *arguments, "--state-dir", str(log.path.parent.parent), check=check)


def day(number: int) -> str:
    return f"2026-11-{number:02d}T03:00:00.000Z"


FOUR = (BEGUN, batch(1, 0), result(1, {0: "trimmed"}), {"event": "end", "run": "r1", "at": AT, "exit": 0, "totals": {}})
