"""Past runs: what they trimmed, what was verified of them, and what another policy would have trimmed."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kretain.render.output import BLANK, MOST, Column, Line, Part, Table, heading, joined, number, show, signed, size
from retention_cli.audit.log import Run
from retention_cli.core.model import TopicPartition
from retention_cli.core.units import count, timestamp
from retention_cli.trim.history import Verified

if TYPE_CHECKING:  # they import pyarrow's part
    from retention_cli.evidence.replay import Difference, Replayed
    from retention_cli.evidence.verify import Verdict

HISTORY_FORMAT: Final = "kretain.history/v1"
COLUMNS: Final = (
    *("run", "at", "cluster", "user", "host", "policy", "planned", "trimmed", "held", "failed", "unverified"),
    *("records", "bytes", "exit"),
)
RUN_COLUMNS: Final = (
    *("batch", "at", "topic", "partition", "from", "target", "outcome", "log_start", "records", "bytes", "reason"),
)
_REPLAYED: Final = {
    "earlier": "deleted before the real runs deleted them, if ever",
    "later": "deleted in a later run",
    "never": "kept that the real runs deleted",
    "same": "deleted in the same run",
}
_WIDE: Final = 34
_NONE: Final = "No trims yet. kretain plan shows what a trim would delete."


def print_runs(
    runs: Sequence[Run],
    output: str,
    *,
    every_row: bool,
    none: str = _NONE,
    settings: Sequence[dict[str, Any]] = (),
) -> None:
    """Print a row per run, in a table ``none`` if there is none, and the settings that protect changed.

    There, runs in a row that trimmed nothing are one, unless ``every_row``.
    """
    rows = [run_row(run) for run in runs]
    show(
        output,
        {"format": HISTORY_FORMAT, "settings": list(settings)},
        "runs",
        rows,
        lambda: [
            *(_runs(rows, every_row=every_row) if rows else ()),
            *(_changes(settings) if settings else ()),
            None if rows or settings else Line(none, "bold"),
        ],
        COLUMNS,
    )


def print_changes(settings: Sequence[dict[str, Any]], output: str) -> None:
    """Print the settings that a run of protect changed."""
    show(
        output,
        {"format": HISTORY_FORMAT, "run": settings[0]["run"]},
        "settings",
        settings,
        lambda: _changes(settings),
        ("run", "at", "cluster", "topic", "setting", "from", "to", "original", "outcome", "reason"),
    )


def _changes(settings: Sequence[dict[str, Any]]) -> list[Part]:
    return [
        BLANK,
        Table(
            (
                Column("at", unbroken=True),
                Column("topic"),
                Column("setting", unbroken=True),
                Column("from → to", "right"),
                Column("outcome", unbroken=True),
                Column("reason"),
            ),
            [
                (
                    row["at"],
                    row["topic"],
                    row["setting"],
                    f"{row['from'] or 'default'} → {row['to'] or 'default'}",
                    str(row["outcome"]),
                    row["reason"] or "",
                )
                for row in settings
            ],
            [None if row["outcome"] == "done" else "red" for row in settings],
        ),
        Line(f"{count(len(settings), 'change')} of settings by protect.", "bold"),
    ]


def nothing_chosen(runs: int, outcome: str | None = None) -> str:
    """Return what to print if none of this many runs was chosen."""
    if not runs:
        return _NONE
    which = "matches" if outcome is None else f"had {'an' if outcome[0] == 'u' else 'a'} {outcome} partition"
    return f"None of {count(runs, 'run')} {which}."


def _runs(rows: Sequence[dict[str, Any]], *, every_row: bool) -> list[Part]:
    several = len({row["cluster"] for row in rows}) > 1
    shown = list(rows if every_row else _folded(rows))
    return [
        Table(
            (
                Column("run", unbroken=True),
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
        Line(joined(count(len(rows), "run"), not several and f" of cluster {rows[0]['cluster']}", "."), "bold"),
        len(shown) < len(rows) and Line("Runs that trimmed nothing are folded: --all shows each.", "dim"),
        Line("kretain history --run ID shows one run, partition by partition.", "dim"),
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
        {"format": HISTORY_FORMAT, **about},
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
                    Column("outcome", unbroken=True),
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
                        "The run was cut off: the log has no end of it. Its announced deletes may have happened.",
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
    for batch, row, result in run.announced():
        outcome = result.get("outcome", "unverified")
        gone = outcome in ("trimmed", "unverified")
        yield {
            "batch": batch["batch"],
            "at": batch["at"],
            "topic": row["topic"],
            "partition": row["partition"],
            "from": row["log_start"],
            "target": row["target"],
            "outcome": outcome,
            "log_start": result.get("log_start"),
            "records": row["records"] if gone else 0,
            "bytes": row["bytes"] if gone else 0,
            "reason": result.get("reason"),
        }


def print_verified(found: Sequence[Verified], output: str) -> None:
    """Print one line per intact log, otherwise one line per break: ``file:line: what it means``."""
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
    show(
        output,
        {"format": "kretain.audit/v1"},
        "logs",
        rows,
        lambda: (
            [part for one in found for part in _verified(one)]
            or [Line("No audit log yet: nothing was trimmed.", "bold")]
        ),
        ("cluster", "file", *("lines", "older", "removed", "since", "behind"), "breaks"),
        [{**row, "breaks": [*map(one.log.shown, one.chain.breaks)]} for row, one in zip(rows, found, strict=True)],
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
    text = joined(
        f"{count(chain.lines, 'line')}, unbroken since {chain.since}",
        chain.removed and f"the files before it, with {count(chain.removed, 'line')}, were removed",
        chain.behind and "the head is one line behind, as after a crash: no line is missing",
        by="; ",
    )
    return [f"{one.cluster}: {text}."]


def print_verdicts(found: Sequence[Verdict], output: str) -> None:
    """Print a line for each run that is proven, otherwise one for each finding."""
    rows: list[dict[str, Any]] = [
        {
            "run": one.run,
            "rows": one.rows,
            "requests": one.requests,
            "findings": [{"where": place, "text": text} for place, text in one.findings],
            "more": one.more,
        }
        for one in found
    ]
    show(
        output,
        {"format": "kretain.verify/v1"},
        "runs",
        rows,
        lambda: [part for one in found for part in _proven(one)],
        ("run", "rows", "requests", "findings", "more"),
        [
            {**row, "findings": [f"{place}: {text}" for place, text in one.findings]}
            for row, one in zip(rows, found, strict=True)
        ],
    )


def _proven(one: Verdict) -> list[Part]:
    left = len(one.findings) + one.more - MOST
    rows, requests = count(one.rows, "decision"), count(one.requests, "request")
    done = (
        f"{rows} of a plan repeated; audit logs do not cover plans."
        if one.plan
        else f"{rows} repeated, {requests} within plan and facts; the audit log is complete."
    )
    return [
        *(Line(f"{place}: {text}", "red") for place, text in one.findings[:MOST]),
        left > 0 and Line(f"{one.run}: and {count(left, 'more finding')}", "red"),
        None if one.findings else f"{one.run}: proven. {done}",
    ]


def print_replayed(found: Replayed, source: str, output: str) -> None:
    """Print what differs: by day, and by partition."""
    show(
        output,
        {
            "format": "kretain.replay/v1",
            "policy": source,
            "runs": [one.run for one in found.runs],
            "decisions": found.decisions,
            "totals": dict(found.totals),
            "partitions_without_size": found.unsized,
            "days": [
                {"day": timestamp(one.start_ms)[:10], "bytes": one.retained, "bytes_under_policy": one.under_policy}
                for one in found.days
            ],
            "holds": [{"code": one.code, "decisions": one.decisions, "text": one.text} for one in found.reasons],
        },
        "partitions",
        (one._asdict() for one in found.differences()),
        lambda: _replayed(found, source),
        (
            *("cluster", "topic", "partition", "earlier", "later", "never", "same", "unread", "unread_by"),
            *("unread_run", "held", "lacking"),
        ),
    )


def _replayed(found: Replayed, source: str) -> list[Part]:
    totals, days = found.totals, found.days
    most = max(max(one.retained, one.under_policy) for one in days) or 1
    return [
        Line(f"{count(len(found.runs), 'run')}, decided again by {source}", "bold"),
        totals["unread"] > 0
        and Line(f"It would have deleted {count(totals['unread'], 'record')} that a group had not read.", "bold red"),
        totals["lacking"] > 0
        and Line(
            "Nothing could be decided: the evidence lacks what this policy needs; kretain plan --evidence records it."
            if totals["lacking"] == totals["partitions"]
            else f"The evidence of some runs lacks a fact for {count(totals['lacking'], 'partition')} of "
            f"{totals['partitions']:,}: they hold there.",
            "yellow",
        ),
        *(Line(f"{name:7}  {count(totals[name], 'record')} {text}", indent=2) for name, text in _REPLAYED.items()),
        heading("Size of the leaders' logs after each day's last run"),
        Table(
            (
                Column("day", unbroken=True),
                *(Column(title, "right") for title in ("actual", "by this policy", "difference")),
                Column("█ both  ▓ policy only  ░ real only"),
            ),
            [
                (
                    timestamp(one.start_ms)[:10],
                    size(one.retained),
                    size(one.under_policy),
                    signed(one.under_policy - one.retained),
                    "█" * both + ("▓" if one.under_policy > one.retained else "░") * (longest - both),
                )
                for one in days
                for both, longest in (sorted(round(_WIDE * n / most) for n in (one.retained, one.under_policy)),)
            ],
        ),
        found.unsized > 0 and Line(f"{count(found.unsized, 'partition')} of unknown size are not included.", "dim"),
        *_differences(found),
        heading("On hold") if found.reasons else None,
        *(
            Line(f"{held.code}  {count(held.decisions, 'decision')}, such as: {held.text}", indent=2, code=held.code)
            for held in found.reasons[:MOST]
        ),
    ]


def _differences(found: Replayed) -> list[Part]:
    def weight(one: Difference) -> tuple[int, int]:
        return one.unread, one.earlier + one.later + one.never

    shown = heapq.nlargest(MOST, (one for one in found.differences() if any(weight(one))), key=weight)
    parts: list[Part] = [
        heading("Partitions that differ most"),
        Table(
            (
                Column("partition"),
                *(Column(one, "right") for one in ("unread", "earlier", "later", "never")),
                Column("by"),
            ),
            [
                (
                    str(TopicPartition(one.topic, one.partition)),
                    *map(number, (one.unread, one.earlier, one.later, one.never)),
                    f"{one.unread_by or 'no known group'}, {one.unread_run}" if one.unread else "",
                )
                for one in shown
            ],
            ["red" if one.unread else None for one in shown],
        ),
        BLANK,
        Line(
            "kretain explain TOPIC:PARTITION --run RUN draws one as a run saw it; -o csv lists every partition.", "dim"
        ),
    ]
    return parts if shown else []
