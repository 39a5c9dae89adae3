"""Past trims as a page: what went when, by whom, and how it ended; disks over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from kretain.render.history import run_row
from kretain.render.output import count, number, size
from kretain.render.page.charts import GO, bars, columns
from kretain.render.page.disks_part import disks_section
from kretain.render.page.elements import Child, Element, cards, element, page, section, table
from retention_cli.audit.runs import Run
from retention_cli.memory.disk import Look
from retention_cli.policy.shown import short

MOST: Final = 60
_DRAWN: Final = 12


def history_page(
    runs: Sequence[Run],
    disks: Mapping[str, Sequence[Look]],
    notes: Sequence[str],
    where: str,
    more: Sequence[Element] = (),
) -> str:
    """Return the page of past runs, oldest first; ``where`` is the state directory that they are from.

    ``disks`` are the ledgers' looks, ``notes`` what of them could not be read, ``more`` other parts of the page.
    """
    rows = [run_row(run) for run in runs]
    clusters = sorted({one["cluster"] for one in rows})
    records = sum(one["records"] for one in rows)
    odd = sum(one["exit"] != 0 for one in rows)
    lead = (
        f"{count(len(rows), 'trim')} of {count(len(clusters), 'cluster')}: {count(records, 'record')} went."
        if rows
        else "No trims yet."
    )
    facts = [("State directory", where)]
    if rows:
        facts += [("From", rows[0]["at"]), ("To", rows[-1]["at"]), ("Clusters", ", ".join(clusters[:6]))]
    known = [one["bytes"] for one in rows]
    total = None if any(one is None for one in known) else sum(known)
    figures = [
        (number(len(rows)), "trims", ""),
        (number(records), "records went", "go"),
        (size(total), "of the leaders' logs", "go"),
        (number(sum(one["failed"] + one["unverified"] for one in rows)), "partitions failed or unverified", ""),
        (number(odd), "runs with an exit other than 0", "bad" if odd else ""),
    ]
    return page(
        "Past trims",
        lead,
        facts,
        cards(figures),
        _days(rows),
        _topics(runs),
        _runs(rows),
        *more,
        disks_section(disks, notes),
    )


def _days(rows: Sequence[Mapping[str, object]]) -> Element | None:
    if not rows:
        return None
    days: Counter[str] = Counter()
    for one in rows:
        days[str(one["at"])[:10]] += int(str(one["records"]))
    shown = sorted(days)[-MOST:]
    chart = columns("Records that went, by day", shown, [days[day] for day in shown], "records a day")
    note = None if len(shown) == len(days) else f"The last {len(shown)} of {count(len(days), 'day')} with a trim."
    return section("What went, by day", chart, note=note)


def _topics(runs: Sequence[Run]) -> Element | None:
    gone: Counter[str] = Counter()
    for run in runs:
        for number_of, batch in run.batches.items():
            told = (run.results.get(number_of) or {"partitions": ()})["partitions"]
            trimmed = {(one["topic"], one["partition"]) for one in told if one["outcome"] == "trimmed"}
            for one in batch["partitions"]:
                if (one["topic"], one["partition"]) in trimmed:
                    gone[one["topic"]] += one["records"]
    most = [pair for pair in sorted(gone.items(), key=lambda pair: (-pair[1], pair[0])) if pair[1]][:_DRAWN]
    if not most:
        return None
    chart = bars("Records that went, by topic", [name for name, _ in most], {"went": (GO, [one for _, one in most])})
    return section("What went, by topic", chart, note=f"{len(most)} of {count(len(gone), 'topic')}.")


def _runs(rows: Sequence[Mapping[str, object]]) -> Element | None:
    if not rows:
        return None
    cells: list[Sequence[Child]] = [
        (
            element("code", str(one["run"])),
            short(str(one["cluster"])),
            short(f"{one['user']}@{one['host']}"),
            short(str(one["policy"])),
            f"{one['trimmed']:,} of {one['planned']:,}",
            number(int(str(one["failed"])) + int(str(one["unverified"]))),
            number(int(str(one["records"]))),
            "no end" if one["exit"] is None else str(one["exit"]),
        )
        for one in list(rows)[-MOST:][::-1]
    ]
    heads = ("run", "cluster", "by", "policy", "trimmed", "failed", "records", "exit")
    note = f"{len(cells)} of {count(len(rows), 'run')}, the newest first. kretain history --run ID shows one."
    return section("Runs", table(heads, cells, left=4), note=note)
