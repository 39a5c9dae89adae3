"""Past runs, and whether audit logs are intact."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kretain.render.output import BLANK, MOST, Column, Line, Part, Table, number, show, size
from retention_cli.audit.log import Run
from retention_cli.core.units import count
from retention_cli.trim.history import Verified

FORMAT: Final = "kretain.history/v1"
COLUMNS: Final = (
    *("run", "at", "cluster", "user", "host", "policy", "planned", "trimmed", "held", "failed", "unverified"),
    *("records", "bytes", "exit"),
)
RUN_COLUMNS: Final = (
    *("batch", "at", "topic", "partition", "from", "target", "outcome", "log_start", "records", "bytes", "reason"),
)

_NONE: Final = "No trims yet. kretain plan shows what a trim would delete."


def print_runs(runs: Sequence[Run], output: str, *, every_row: bool, none: str = _NONE) -> None:
    """Print a row per run, in a table ``none`` if there is none.

    There, runs in a row that trimmed nothing are one, unless ``every_row``.
    """
    rows = [run_row(run) for run in runs]
    show(output, {"format": FORMAT}, "runs", rows, lambda: _runs(rows, none, every_row=every_row), COLUMNS)


def nothing_chosen(runs: int, outcome: str | None = None) -> str:
    """Return what to print where none of so many runs was chosen."""
    if not runs:
        return _NONE
    which = "matches" if outcome is None else f"had {'an' if outcome[0] == 'u' else 'a'} {outcome} partition"
    return f"None of {count(runs, 'run')} {which}."


def _runs(rows: Sequence[dict[str, Any]], none: str, *, every_row: bool) -> list[Part]:
    if not rows:
        return [Line(none, "bold")]
    several = len({row["cluster"] for row in rows}) > 1
    shown = list(rows if every_row else _folded(rows))
    where = "" if several else f" of cluster {rows[0]['cluster']}"
    return [
        Table(
            (
                Column("run", whole=True),
                *((Column("cluster"),) if several else ()),
                Column("by"),
                *(Column(title, "right") for title in ("trimmed", "failed", "records", "bytes", "exit")),
            ),
            [
                (f"… {count(row, 'run')}", "", *(("",) if several else ()), "0", "", "", "", "0")
                if isinstance(row, int)
                else (
                    row["run"],
                    *((row["cluster"],) if several else ()),
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
        ),
        BLANK,
        Line(f"{count(len(rows), 'run')}{where}.", "bold"),
        len(shown) < len(rows) and Line("Runs that trimmed nothing are folded: --all shows each.", "dim"),
        Line("kretain history --run ID shows one, partition by partition.", "dim"),
    ]


def _folded(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any] | int]:
    """Yield the rows, and the number of those in a row, two at least, that trimmed nothing and ended well."""
    for idle, some in itertools.groupby(
        rows, key=lambda row: row["exit"] == 0 and not (row["trimmed"] or row["failed"] or row["unverified"])
    ):
        block = list(some)
        yield from [len(block)] if idle and len(block) > 1 else block


def print_run(run: Run, output: str) -> None:
    """Print one run, a row per partition and batch."""
    rows, about = list(partitions_of(run)), run_row(run)
    show(
        output,
        {"format": FORMAT, **about},
        "partitions",
        rows,
        lambda: [
            Line(f"Run {run.run}", "bold"),
            f"{about['at']} by {about['user']}@{about['host']}, cluster {about['cluster']}, policy {about['policy']}",
            BLANK,
            Table(
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
            ),
            run.evidence
            and Line(f"kretain explain TOPIC:PARTITION --run {run.run} draws one as the run saw it.", "dim"),
            *(
                (
                    BLANK,
                    Line(
                        "The log has no end of this run: it was cut off. Its announced deletes may have happened.",
                        "bold red",
                    ),
                )
                if run.end is None
                else ()
            ),
        ],
        RUN_COLUMNS,
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
        **{name: totals.get(name, 0) for name in ("trimmed", "held", "failed", "unverified")},
        "records": gone.records,
        "bytes": gone.size_bytes,
        "exit": None if run.end is None else run.end["exit"],
    }


def partitions_of(run: Run) -> Iterator[dict[str, Any]]:
    """Yield a run's rows, one per partition and batch."""
    for batch_number, batch in run.batches.items():
        result = run.results.get(batch_number) or {"partitions": ()}
        outcomes = {(row["topic"], row["partition"]): row for row in result["partitions"]}
        for row in batch["partitions"]:
            told = outcomes.get((row["topic"], row["partition"]), {})
            outcome = told.get("outcome", "unverified")
            gone = outcome in ("trimmed", "unverified")
            yield {
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


def print_verified(found: Sequence[Verified], output: str) -> None:
    """Print one line per intact log, otherwise one line per break: ``file:line: what it means``."""
    plain = ("lines", "older", "removed", "since", "behind")
    rows: list[dict[str, Any]] = [
        {
            "cluster": one.cluster,
            "file": str(one.log.path),
            "lines": one.chain.lines,
            "older": 0,  # a key of kretain.audit/v1: lines without a chain were once counted, and are breaks
            "removed": one.chain.removed,
            "since": one.chain.since,
            "behind": one.chain.behind,
            "breaks": [{"file": broken.file, "line": broken.line, "text": broken.text} for broken in one.chain.breaks],
        }
        for one in found
    ]
    cells = [{**row, "breaks": [*map(one.log.shown, one.chain.breaks)]} for row, one in zip(rows, found, strict=True)]
    people = [part for one in found for part in _verified(one)]
    show(
        output,
        {"format": "kretain.audit/v1"},
        "logs",
        rows,
        lambda: people or [Line("No audit log yet: nothing was trimmed.", "bold")],
        ("cluster", "file", *plain, "breaks"),
        cells,
    )


def _verified(one: Verified) -> list[Part]:
    chain = one.chain
    if chain.breaks:
        left = len(chain.breaks) + chain.more - MOST
        return [
            *(Line(one.log.shown(broken), "red") for broken in chain.breaks[:MOST]),
            left > 0 and Line(f"{one.log.path}: and {count(left, 'more break')}", "red"),
        ]
    if chain.since is None:
        return [f"{one.cluster}: no lines: the next trim begins the chain."]
    removed = f"the files before it, with {count(chain.removed, 'line')}, were removed"
    said = (
        f"{count(chain.lines, 'line')}, unbroken since {chain.since}",
        chain.removed and removed,
        chain.behind and "the head is one line behind, as after a crash: no line is missing",
    )
    return [f"{one.cluster}: {'; '.join(text for text in said if text)}."]
