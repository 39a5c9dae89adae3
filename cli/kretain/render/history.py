"""Past runs, on the screen and for scripts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.screen import Column
from kretain.render.kit.text import count, number, size
from retention_cli.audit.runs import Run

FORMAT = "kretain.history/v1"
COLUMNS = (
    "run",
    "at",
    "cluster",
    "user",
    "host",
    "policy",
    "planned",
    "trimmed",
    "held",
    "failed",
    "unverified",
    "records",
    "bytes",
    "exit",
)
RUN_COLUMNS = (
    "batch",
    "at",
    "topic",
    "partition",
    "from",
    "target",
    "outcome",
    "log_start",
    "records",
    "bytes",
    "reason",
)


def print_runs(runs: Sequence[Run], output: Output, *, every_row: bool) -> None:
    """Print a row per run; in a table, runs in a row that trimmed nothing are one, unless ``every_row``."""
    rows = [run_row(run) for run in runs]
    match output:
        case Output.json:
            data.print_json({"format": FORMAT}, "runs", rows)
        case Output.yaml:
            data.print_yaml({"format": FORMAT, "runs": rows})
        case Output.csv:
            data.print_csv(COLUMNS, rows)
        case Output.table:
            if not rows:
                screen.say("No trims yet.", "bold")
                return
            clusters = {row["cluster"] for row in rows}
            shown = list(rows) if every_row else list(_folded(rows))
            screen.print_table(
                (
                    Column("run", whole=True),
                    *((Column("cluster"),) if len(clusters) > 1 else ()),
                    Column("by"),
                    Column("trimmed", "right"),
                    Column("failed", "right"),
                    Column("records", "right"),
                    Column("bytes", "right"),
                    Column("exit", "right"),
                ),
                [
                    (f"… {count(row, 'run')}", "", *(("",) if len(clusters) > 1 else ()), "0", "", "", "", "0")
                    if isinstance(row, int)
                    else (
                        row["run"],
                        *((row["cluster"],) if len(clusters) > 1 else ()),
                        f"{row['user']}@{row['host']}",
                        f"{row['trimmed']:,} of {row['planned']:,}",
                        number(row["failed"] + row["unverified"]),
                        number(row["records"]),
                        size(row["bytes"]),
                        "no end" if row["exit"] is None else str(row["exit"]),
                    )
                    for row in shown
                ],
                ["dim" if isinstance(row, int) else None if row["exit"] == 0 else "red" for row in shown],
            )
            screen.say()
            where = f" of cluster {rows[0]['cluster']}" if len(clusters) == 1 else ""
            screen.say(f"{count(len(rows), 'run')}{where}.", "bold")
            if len(shown) < len(rows):
                screen.say("Runs that trimmed nothing are folded: --all shows each.", "dim")
            screen.say("kretain history --run ID shows one, partition by partition.", "dim")


def _folded(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any] | int]:
    """Yield the rows, and the number of those in a row, two at least, that trimmed nothing and ended well."""
    for idle, some in itertools.groupby(rows, key=_is_idle):
        block = list(some)
        yield from [len(block)] if idle and len(block) > 1 else block


def _is_idle(row: dict[str, Any]) -> bool:
    return row["exit"] == 0 and not (row["trimmed"] or row["failed"] or row["unverified"])


def print_run(run: Run, output: Output) -> None:
    """Print one run, a row per partition and batch."""
    rows = _partitions(run)
    head = {"format": FORMAT, **run_row(run)}
    match output:
        case Output.json:
            data.print_json(head, "partitions", rows)
        case Output.yaml:
            data.print_yaml({**head, "partitions": rows})
        case Output.csv:
            data.print_csv(RUN_COLUMNS, rows)
        case Output.table:
            about = run_row(run)
            screen.say(f"Run {run.run}", "bold")
            screen.say(
                f"{about['at']} by {about['user']}@{about['host']}, cluster {about['cluster']}, "
                f"policy {about['policy']}"
            )
            screen.say()
            screen.print_table(
                (
                    Column("partition"),
                    Column("from → target", "right"),
                    Column("outcome", whole=True),
                    Column("log start", "right"),
                    Column("records", "right"),
                    Column("reason"),
                ),
                [
                    (
                        f"{row['topic']}-{row['partition']}",
                        f"{number(row['from'])} → {number(row['target'])}",
                        row["outcome"],
                        number(row["log_start"]),
                        number(row["records"]),
                        row["reason"] or "",
                    )
                    for row in rows
                ],
                [None if row["outcome"] in ("trimmed", "unchanged") else "red" for row in rows],
            )
            if run.end is None:
                screen.say()
                screen.say(
                    "The log has no end of this run: it was cut off. What it had announced may have been deleted.",
                    "bold red",
                )


def run_row(run: Run) -> dict[str, Any]:
    """Return a run as a row of :data:`COLUMNS`."""
    begun, totals = run.begun, (run.end or {}).get("totals", {})
    gone = run.trimmed()
    return {
        "run": run.run,
        "at": begun["at"],
        "cluster": begun["cluster"]["id"],
        "user": begun["user"],
        "host": begun["host"],
        "policy": begun["policy"]["source"],
        "planned": begun["planned"]["partitions"],
        "trimmed": totals.get("trimmed", 0),
        "held": totals.get("held", 0),
        "failed": totals.get("failed", 0),
        "unverified": totals.get("unverified", 0),
        "records": gone.records,
        "bytes": gone.size_bytes,
        "exit": None if run.end is None else run.end["exit"],
    }


def _partitions(run: Run) -> list[dict[str, Any]]:
    rows = []
    for batch_number, batch in run.batches.items():
        result = run.results.get(batch_number)
        outcomes = {(row["topic"], row["partition"]): row for row in (result or {"partitions": ()})["partitions"]}
        for row in batch["partitions"]:
            told = outcomes.get((row["topic"], row["partition"]), {})
            outcome = told.get("outcome", "unverified")
            gone = outcome in ("trimmed", "unverified")
            rows.append(
                {
                    "batch": batch_number,
                    "at": batch["at"],
                    "topic": row["topic"],
                    "partition": row["partition"],
                    "from": row["log_start"],
                    "target": row["target"],
                    "outcome": outcome,
                    "log_start": told.get("log_start"),
                    "records": row["records"] if gone else 0,
                    "bytes": row["bytes"] if gone else 0,
                    "reason": told.get("reason"),
                }
            )
    return rows
