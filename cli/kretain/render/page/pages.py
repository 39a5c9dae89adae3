"""A plan and past trims as pages: what would go, what went, what holds it, disks over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kretain.render.history import partitions_of, run_row
from kretain.render.output import about, joined, moment, number, signed, size
from kretain.render.page.elements import (
    DRAWN,
    GO,
    HOLD,
    LINES,
    MOST_ROWS,
    STAY,
    Element,
    bars,
    cards,
    columns,
    element,
    lines,
    page,
    section,
    table,
)
from kretain.render.plan import read_by, summary
from retention_cli.audit.log import Run
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Action, Reason, Unknown
from retention_cli.core.printable import shell_word, short
from retention_cli.core.units import count
from retention_cli.memory.disk import DiskSample, growth
from retention_cli.plan.value import NO_FILE, Plan
from retention_cli.reports.plan_summary import PlanSummary, Sum, command_for, summarize

_MOST_RUNS: Final = 60
_ACTIONS: Final = {
    "hold": "On hold",
    "trim": "Notes on partitions to trim",
    "keep": "Notes on partitions that stay",
    "skip": "Never touched",
}


def plan_page(
    plan: Plan,
    disks: Mapping[str, Sequence[DiskSample]],
    notes: Sequence[str],
    more: Sequence[Element | None] = (),
    context: str = "",
) -> str:
    """Return the page of a plan.

    ``disks`` are the ledger's looks, ``notes`` what of it could not be read, ``more`` other parts of the page,
    ``context`` the names of the contexts with the cluster's address.
    """
    found = summarize(plan)
    totals, source = found.totals, plan.policy_source
    one_off = source == NO_FILE or plan.rules == "one-off"
    return page(
        f"Trim plan for {context or plan.cluster_id}",
        joined(summary(totals), totals.trim and read_by(totals.unconsumed), by=" "),
        [
            *([("Context", context)] if context else []),
            ("Cluster", plan.cluster_id),
            ("Brokers", short(plan.bootstrap)),
            ("Policy", joined(source != NO_FILE and source, one_off and "one-off rules", by=", ")),
            ("Made at", moment(plan.created_at_ms)),
            *([("Topics", ", ".join(plan.topics[:6]))] if plan.topics else []),
        ],
        cards(
            [
                (number(totals.records), "records to trim", "go"),
                (size(totals.size_bytes), "of the leaders' logs", "go"),
                (number(totals.unconsumed), "of these records unread", "bad" if totals.unconsumed else ""),
                (number(totals.trim), "partitions to trim", "go"),
                (number(totals.hold), "on hold", "hold" if totals.hold else ""),
                (number(totals.keep), "have nothing to trim", ""),
                *([(number(totals.skip), "never touched", "")] if totals.skip else []),
            ]
        ),
        _topics(found),
        _consumers(found),
        *(
            section(
                title,
                *(_reason(*why, one, plan) for why, one in found.reasons[:MOST_ROWS] if why[0] == action),
                note=_of(len(found.reasons), "reason") if action == "hold" else None,
            )
            for action, title in _ACTIONS.items()
        ),
        *more,
        _disks_over_time(disks, notes),
    )


def _topics(found: PlanSummary) -> Element | None:
    drawn = [one for one in sorted(found.topics, key=lambda one: (-one.records, one.name)) if one.records][:DRAWN]
    return section(
        "Topics",
        bars(
            "Records of the largest topics: to trim, kept, on hold",
            [one.name for one in drawn],
            {
                "would go": (GO, [one.totals.records for one in drawn]),
                "stays": (STAY, [one.staying for one in drawn]),
                "on hold": (HOLD, [one.held_records for one in drawn]),
            },
        ),
        table(
            ("topic", "partitions", "records now", "would go", "bytes", "unread", "on hold"),
            (
                (
                    element("code", short(one.name)),
                    *map(number, (one.totals.partitions, one.records, one.totals.records)),
                    size(one.totals.size_bytes),
                    *map(number, (one.totals.unconsumed, one.totals.hold)),
                )
                for one in found.topics[:MOST_ROWS]
            ),
        ),
        note="Chart: largest topics. Table: most to trim. " + _of(len(found.topics), "topic"),
    )


def _consumers(found: PlanSummary) -> Element | None:
    shown = found.consumers[:MOST_ROWS]
    names = [short(name.removeprefix("group:")) for name, _ in shown]
    return section(
        "Who holds back the most",
        bars(
            "Unread records of each consumer where it is furthest behind",
            names[:DRAWN],
            {"yet to read": (HOLD, [one.records for _, one in shown[:DRAWN]])},
        ),
        table(
            ("consumer", "records to read", "partitions", "topics"),
            (
                (element("code", name), number(one.records), number(one.partitions), number(len(one.topics)))
                for name, (_, one) in zip(names, shown, strict=True)
            ),
        ),
        note="Rules that wait for consumers stop at the one that is furthest behind. "
        + _of(len(found.consumers), "consumer"),
    )


def _reason(action: Action, reason: Reason, one: Sum, plan: Plan) -> Element:
    first, more = one.first[0], one.partitions - len(one.first)
    named = ", ".join(short(str(tp)) for tp in one.first) + (f" and {more:,} more" if more > 0 else "")
    command = joined(
        command_for(reason.code).format(
            topic=shell_word(first.topic), place=shell_word(f"{first.topic}:{first.partition}")
        ),
        plan.policy_source != NO_FILE and f" -p {shell_word(plan.policy_source)}",
        f" -b {shell_word(plan.bootstrap)}",
    )
    return element(
        "div",
        element("p", element("span", reason.code, class_="tag"), reason.text),
        element(
            "p", f"{count(one.partitions, 'partition')} of {count(len(one.topics), 'topic')}: {named}", class_="note"
        ),
        element("p", element("code", command)),
        class_=f"reason {action}",
    )


def _of(there: int, noun: str) -> str:
    which = "All" if 1 < there <= MOST_ROWS else f"{min(there, MOST_ROWS)} of"
    return f"{which} {count(there, noun)}."


def history_page(
    runs: Sequence[Run],
    disks: Mapping[str, Sequence[DiskSample]],
    notes: Sequence[str],
    where: str,
    more: Sequence[Element | None],
    contexts: Mapping[str, str],
) -> str:
    """Return the page of past runs, oldest first; ``where`` is the state directory that they are from.

    ``disks`` are the ledgers' looks, ``notes`` what of them could not be read, ``more`` other parts of the page,
    ``contexts`` the names of the contexts with a cluster's address, by its id.
    """
    rows = [run_row(run) for run in runs]
    clusters = sorted({one["cluster"] for one in rows})
    records = sum(one["records"] for one in rows)
    failed = sum(one["exit"] != 0 for one in rows)
    named = ", ".join(f"{contexts[one]} ({one})" if contexts.get(one) else one for one in clusters[:6])
    known = [one["bytes"] for one in rows]
    return page(
        "Past trims",
        f"{count(len(rows), 'trim')} of {count(len(clusters), 'cluster')}: {count(records, 'record')} deleted."
        if rows
        else "No trims yet.",
        [
            ("State directory", where),
            *([("From", rows[0]["at"]), ("To", rows[-1]["at"]), ("Clusters", named)] if rows else []),
        ],
        cards(
            [
                (number(len(rows)), "trims", ""),
                (number(records), "records trimmed", "go"),
                (size(None if None in known else sum(known)), "of the leaders' logs", "go"),
                (number(sum(one["failed"] + one["unverified"] for one in rows)), "partitions failed or unverified", ""),
                (number(failed), "runs with an exit other than 0", "bad" if failed else ""),
            ]
        ),
        _days(rows),
        _topics_of(runs),
        _runs(rows),
        *more,
        _disks_over_time(disks, notes),
    )


def _days(rows: Sequence[Mapping[str, Any]]) -> Element | None:
    days = {day: sum(some) for day, some in by_key((one["at"][:10], one["records"]) for one in rows).items()}
    last = sorted(days)[-_MOST_RUNS:]
    return section(
        "Trimmed, by day",
        columns("Trimmed records, by day", last, [days[day] for day in last], "records a day"),
        note=None if len(last) == len(days) else f"The last {len(last)} of {count(len(days), 'day')} with a trim.",
    )


def _topics_of(runs: Sequence[Run]) -> Element | None:
    rows = (row for run in runs for row in partitions_of(run) if row["outcome"] == "trimmed")
    gone = {name: sum(some) for name, some in by_key((row["topic"], row["records"]) for row in rows).items()}
    most = [pair for pair in sorted(gone.items(), key=lambda pair: (-pair[1], pair[0])) if pair[1]][:DRAWN]
    return section(
        "Trimmed, by topic",
        bars("Trimmed records, by topic", [name for name, _ in most], {"went": (GO, [one for _, one in most])}),
        note=f"{len(most)} of {count(len(gone), 'topic')}.",
    )


def _runs(rows: Sequence[Mapping[str, Any]]) -> Element | None:
    newest = rows[-_MOST_RUNS:][::-1]
    return section(
        "Runs",
        table(
            ("run", "cluster", "by", "policy", "trimmed", "failed", "records", "exit"),
            (
                (
                    element("code", one["run"]),
                    *map(short, (one["cluster"], f"{one['user']}@{one['host']}", one["policy"])),
                    f"{one['trimmed']:,} of {one['planned']:,}",
                    number(one["failed"] + one["unverified"]),
                    number(one["records"]),
                    "no end" if one["exit"] is None else str(one["exit"]),
                )
                for one in newest
            ),
            left=4,
        ),
        note=f"{len(newest)} of {count(len(rows), 'run')}, newest first. kretain history --run ID shows one, "
        "kretain explain TOPIC:PARTITION --run ID draws a partition as it was.",
    )


def _disks_over_time(disks: Mapping[str, Sequence[DiskSample]], notes: Sequence[str]) -> Element | None:
    """Return the part, None if the ledger has no sample of any disk and there is nothing to report."""
    seen = {name: samples for name, samples in disks.items() if samples}
    fullest = sorted(seen, key=lambda name: (-_percent(seen[name][-1]), name))
    drawn = [name for name in fullest if len(seen[name]) > 1][: len(LINES)]
    return section(
        "Disks over time",
        lines(
            "How full the fullest disks were over time, in percent",
            {f"broker {name}": [(one.wall_ms, _percent(one)) for one in seen[name]] for name in drawn},
            "% in use",
        ),
        table(
            ("disk", "in use", "used", "size", "a day", "full in", "seen at"),
            (_disk_cells(name, seen[name]) for name in fullest[:MOST_ROWS]),
        ),
        *(element("p", one) for one in notes),
        note=joined(
            "As kretain saw them, including all trims in that time.",
            len(fullest) > MOST_ROWS and f" The fullest {MOST_ROWS} of {len(fullest):,}.",
        ),
    )


def _disk_cells(name: str, samples: Sequence[DiskSample]) -> tuple[Element | str, ...]:
    last = samples[-1]
    found = growth(samples[:-1], last)
    return (
        element("code", f"broker {name}"),
        f"{_percent(last):.1f} %",
        size(last.used_bytes),
        size(last.total_bytes),
        "?" if isinstance(found, Unknown) else signed(found.bytes_per_day),
        "?" if isinstance(found, Unknown) else "—" if found.full_in_ms is None else about(found.full_in_ms),
        moment(last.wall_ms),
    )


def _percent(sample: DiskSample) -> float:
    return 100 * sample.used_bytes / sample.total_bytes if sample.total_bytes else 0.0
