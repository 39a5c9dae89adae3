"""Every format of every command, byte for byte: ``GOLDEN=write`` writes the files that this compares with."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from rich.console import Console

from kretain import reach
from kretain.api.values import Origin as PlanOrigin, plan_value
from kretain.errors import line_of
from kretain.options.common import Common, Output, PlanOutput
from kretain.render import (
    advise,
    archive,
    consumers,
    disks,
    explain,
    forecast,
    history,
    output as rendering,
    plan,
    profile,
    protect,
    setup,
    trim,
    why,
)
from kretain.render.page.forecast import forecast_parts
from kretain.render.page.pages import history_page, plan_page
from retention_cli.advise.advice import Advice
from retention_cli.advise.reading import Reading
from retention_cli.archive.catalog import ArchivedPartition, Compacted, Work
from retention_cli.archive.restore import Restored
from retention_cli.archive.restore_groups import GroupPlan
from retention_cli.audit.log import Run
from retention_cli.core.model import Reason
from retention_cli.disks.disk import DiskOutcome
from retention_cli.disks.inventory.format import Inventory
from retention_cli.disks.inventory.scan import ScanReport
from retention_cli.engines.fleet.plan import FleetPlan, FleetReport
from retention_cli.evidence.replay import Day, Difference, Held as HeldRuns, Replayed
from retention_cli.evidence.verify import Verdict
from retention_cli.forecast.value import Bills, Forecast
from retention_cli.memory.disk import DiskSample
from retention_cli.plan.saved import SavedPlanError
from retention_cli.plan.value import Plan
from retention_cli.policy.live import LiveList
from retention_cli.policy.model import Policy
from retention_cli.policy.settings import Origin, Settings
from retention_cli.profile.reading import Profile
from retention_cli.protect.decision import Protection
from retention_cli.reports.doctor import Diagnosis
from retention_cli.reports.explain import Explained
from retention_cli.reports.groups import GroupList
from retention_cli.reports.ledger import Held, LedgerView
from retention_cli.reports.offsets import Positions
from retention_cli.reports.policy_check import Findings
from retention_cli.state.own_topics import Changed, Initialized
from retention_cli.trim.history import Verified
from retention_cli.trim.report import TrimReport
from tests.support.rendered import made

WIDTH = 80
NOW = 1_763_900_000_123
Print = Callable[[Any, Any], None]


def positions(seed: str) -> Positions:
    offsets = ("log_start", "high_watermark", "last_stable_offset", "min_commit", "lag", "lost", "committed")
    hint: dict[str, Any] = {
        **dict.fromkeys((*offsets, "records", "bytes"), int | None),
        "partitions": int,
        "unknown": int,
        "unread_since": int | None,
        "min_commit_by": str | None,
        "group": str,
        "remembered": bool,
        "reasons": tuple[Reason, ...],
        "topic": str,
    }
    rows = []
    for number in range(4):
        row = {key: made(one, seed, f"{key}{number}") for key, one in hint.items()}
        row["reasons"] = [{"code": one.code, "text": one.text} for one in row["reasons"]]
        rows.append({"topic": row.pop("topic"), "partition": number, **row})
    return Positions("c1", "b:9092", rows, rows)


CONTEXTS: dict[str, dict[str, Any]] = {
    "prod": {"bootstrap-server": "b:9092", "policy": "p.yaml", "confirm": "name", "settings": {"sasl.password": "x"}},
    "=dev": {"settings": {"bootstrap.servers": "d:9092"}},
}
KEYS = ("match", "retention.ms", "log.retention.min.timestamp", "retention.bytes", "hold", "groups.require", "archive")


def positions_of(each: Any, value: Any, output: Any, *, of_groups: bool = True) -> None:
    consumers.print_positions(value, output, each, of_groups=of_groups, every_row=False)


def settings_of(value: Any, output: Any) -> None:
    origins = dict(zip(KEYS, value, strict=False))
    setup.print_settings(
        "orders",
        origins,
        Settings(require_groups=("a", "b")),
        Policy(source="policy.yaml", digest="sha256:0", entries=()),
        output,
    )


def scan(value: Any, output: Any) -> None:
    disks.print_scan(value, output, "x.parquet")
    Common().warn(*disks.scan_notes(value))


def inventory(value: Any, output: Any) -> None:
    disks.print_inventory(value, output, NOW)
    Common().warn(*disks.inventory_notes(value))


def protection(value: Protection, output: Any) -> None:
    protect.print_protection(value, output)
    told = [one for one in value.changes if one.action != "release" or one.reasons]
    Common().warn(*map(protect.change_line, told), protect.question(value))


def replayed(value: Any, output: Any) -> None:
    days, reasons, differences, unsized, decisions = value
    totals = {name: sum(getattr(one, name) for one in differences) for name in Difference._fields[3:7]}
    totals |= {"unread": sum(one.unread for one in differences), "lacking": unsized % 3, "partitions": 4}
    found = Replayed([], decisions, days, totals, unsized, reasons, lambda: iter(differences))
    history.print_replayed(found, "policy.yaml", output)


CHANGED: list[dict[str, Any]] = [
    {
        "run": "protect-1",
        "at": "2026-11-01T00:00:00Z",
        "cluster": "c1",
        "topic": "orders|eu",
        "setting": "retention.ms",
        "from": before,
        "to": "86400000",
        "original": None,
        "outcome": outcome,
        "reason": reason,
    }
    for before, outcome, reason in ((None, "done", None), ("3600000", "failed", "no ALTER_CONFIGS"))
]


def clusters(value: tuple[GroupList | Held, ...], output: Any) -> None:
    with rendering.by_cluster(output) as results:
        for name, one in zip(("eu", "=us", "ap"), value, strict=True):
            results.append({"name": name})
            if isinstance(one, Held):
                results[-1]["error"] = line_of(SavedPlanError(one.name))
            else:
                consumers.print_groups(one, output, NOW, is_first=False)


def restored_with_groups(value: tuple[Restored, GroupPlan], output: Any) -> None:
    archive.print_restored(value[0], output, value[1])
    job = value[0].job
    Common().warn(archive.groups_question(value[1], job), archive.question(job, "b:9092"))


def questions(value: Any, output: Any) -> None:
    fleet, alone = value
    Common().warn(trim.question(alone), trim.fleet_question({"eu": trim.topics_to_trim(alone, 2)}, ["us"]))
    plan.print_saved_fleet({name: partial(replace, one) for name, one in fleet.plans.items()})
    del output


COMMANDS: dict[str, tuple[Any, Print]] = {
    "plan": (Plan, lambda one, to: plan.print_plan(one, to, every_row=False)),
    "fleet-plan": (FleetPlan, lambda one, to: plan.print_plan(one, to, every_row=False)),
    "fleet-plan-all": (FleetPlan, lambda one, to: plan.print_plan(one, to, every_row=True)),
    "trim": (TrimReport, lambda one, to: trim.print_report(one, to, every_row=False)),
    "fleet-trim": (FleetReport, lambda one, to: trim.print_fleet_report(one, to, every_row=False)),
    "fleet-trim-all": (FleetReport, lambda one, to: trim.print_fleet_report(one, to, every_row=True)),
    "explain": (tuple[Explained, ...], lambda one, to: explain.print_explained(one, to, every_row=False)),
    "advise": (
        tuple[Reading, list[Advice]],
        lambda one, to: advise.print_advice(one[0], one[1], to, command_config="c.properties", every_row=False),
    ),
    "forecast": (
        tuple[Forecast, Forecast | None],
        lambda one, to: forecast.print_forecast(one[0], one[1], to, every_row=False),
    ),
    "forecast-money": (
        tuple[Forecast, Bills],
        lambda one, to: forecast.print_forecast(replace(one[0], bills=one[1]), None, to, every_row=False),
    ),
    "profile": (Profile, lambda one, to: profile.print_profile(one, to, of_bytes=False)),
    "disk": (tuple[DiskOutcome, ...], lambda one, to: disks.print_disks("c1", "b:9092", one, to)),
    "segments-scan": (ScanReport, scan),
    "segments-show": (Inventory, inventory),
    "doctor": (Diagnosis, setup.print_diagnosis),
    "init": (tuple[Initialized, ...], lambda one, to: setup.print_own_topics("c1", "b:9092", one, to)),
    "contexts": (Path, lambda one, to: setup.print_contexts(one, CONTEXTS, "prod", to)),
    "no-contexts": (Path, lambda one, to: setup.print_contexts(one, {}, None, to)),
    "context": (Path, lambda one, to: setup.print_context(one, "prod", CONTEXTS["prod"], to)),
    "offsets": (Positions, partial(positions_of, None, of_groups=False)),
    "offsets-groups": (Positions, partial(positions_of, None)),
    "offsets-unread": (Positions, partial(positions_of, "topics")),
    "offsets-unread-groups": (
        Positions,
        partial(positions_of, "partitions"),
    ),
    "archive-list": (
        list[tuple[str, ArchivedPartition]],
        partial(archive.print_archives, verified=True),
    ),
    "archive-compact": (
        list[tuple[str, Compacted, Work]],
        partial(archive.print_compacted, dry_run=True),
    ),
    "restore": (Restored, archive.print_restored),
    "policy-show": (tuple[Origin, ...], settings_of),
    "policy-set": (Changed, setup.print_changed),
    "policy-list": (LiveList, lambda one, to: setup.print_live("c1", "b:9092", one, to)),
    "history": (list[Run], lambda one, to: history.print_runs(one, to, every_row=False)),
    "history-run": (Run, history.print_run),
    "history-verify": (list[Verified], history.print_verified),
    "groups": (GroupList, lambda one, to: consumers.print_groups(one, to, NOW, is_first=True)),
    "groups-forget": (list[Held], lambda one, to: consumers.print_forgotten("c1", one, to, dry_run=True)),
    "ledger": (LedgerView, consumers.print_ledger),
    "ledger-prune": (tuple[int, int], lambda one, to: consumers.print_pruned("c1", one[0], one[1], to, dry_run=False)),
    "policy-check": (Findings, lambda one, to: setup.print_checked(Path("p.yaml"), 2, one, to)),
    "protect": (Protection, protection),
    "replay": (tuple[tuple[Day, Day], list[HeldRuns], list[Difference], int, int], replayed),
    "trim-questions": (tuple[FleetPlan, Plan], questions),
    "verify": (list[Verdict], history.print_verdicts),
    "plan-all": (Plan, lambda one, to: plan.print_plan(one, to, every_row=True)),
    "advise-all": (
        tuple[Reading, list[Advice]],
        lambda one, to: advise.print_advice(one[0], one[1], to, command_config=None, every_row=True),
    ),
    "forecast-all": (
        tuple[Forecast, Bills, Forecast],
        lambda one, to: forecast.print_forecast(replace(one[0], bills=one[1]), one[2], to, every_row=True),
    ),
    "profile-bytes": (Profile, lambda one, to: profile.print_profile(one, to, of_bytes=True)),
    "explain-run": (tuple[Explained, ...], lambda one, to: explain.print_explained(one, to, every_row=True, run="r1")),
    "offsets-all": (
        Positions,
        lambda one, to: consumers.print_positions(one, to, None, of_groups=False, every_row=True),
    ),
    "archive-unread": (
        list[tuple[str, ArchivedPartition]],
        partial(archive.print_archives, verified=False),
    ),
    "archive-compacted": (
        list[tuple[str, Compacted, Work]],
        partial(archive.print_compacted, dry_run=False),
    ),
    "restore-groups": (tuple[Restored, GroupPlan], restored_with_groups),
    "groups-forgotten": (list[Held], lambda one, to: consumers.print_forgotten("c1", one, to, dry_run=False)),
    "ledger-prune-dry-run": (
        tuple[int, int],
        lambda one, to: consumers.print_pruned("c1", one[0], one[1], to, dry_run=True),
    ),
    "history-all": (list[Run], lambda one, to: history.print_runs(one, to, every_row=True, settings=CHANGED)),
    "history-changes": (int, lambda _, to: history.print_changes(CHANGED, to)),
    "history-none": (int, lambda one, to: history.print_runs([], to, every_row=True, none=history.nothing_chosen(one))),
    "why": (int, lambda _, to: why.print_codes(None, to)),
    "why-code": (int, lambda _, to: why.print_codes("g2", to)),
    "clusters": (tuple[GroupList, Held, GroupList], clusters),
    "restore-dry-run": (Restored, lambda one, to: archive.print_restored(one, to, dry_run=True)),
}


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def printed(show: Print, value: Any, output: Any, *, terminal: bool) -> str:
    written, told = io.BytesIO(), io.StringIO()
    stream = (Terminal if terminal else io.TextIOWrapper)(written, "utf-8", newline="")
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(told):
        try:
            show(value, output)
        except (TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError) as error:
            stream.write(f"{type(error).__name__}\n")
        stream.flush()
    return written.getvalue().decode() + told.getvalue()


def every_format(name: str, seed: str, show: Print | None = None) -> str:
    """Return a command's output in each format, under headings."""
    hint, ours = COMMANDS[name]
    value = positions(seed) if hint is Positions else made(hint, seed)
    parts = []
    formats = get_args(PlanOutput if "plan" in name else Output)
    for output in (one for one in formats if one != "delete-records" or not name.startswith("fleet")):
        for terminal in (False, True) if output == "table" else (False,):
            text = printed(show or ours, value, output, terminal=terminal)
            parts.append(f"==== {output}{' in a terminal' if terminal else ''}\n{text}")
    return "".join(parts)


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setattr(reach, "_known", [])
    terminal: dict[str, Any] = {
        "force_terminal": True,
        "color_system": "standard",
        "legacy_windows": False,
        "highlight": False,
    }
    monkeypatch.setattr(rendering, "console", lambda: Console(width=WIDTH, **terminal))


def check(shown: str, name: str) -> None:
    file = Path(__file__).parent / "golden" / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(shown, encoding="utf-8", newline="")
    assert shown == file.read_bytes().decode("utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_output_of_each_command_equals_its_golden_file(name: str) -> None:
    check("".join(f"######## {seed}\n{every_format(name, seed)}" for seed in ("one", "two", "three")), name)


@pytest.mark.parametrize(
    ("name", "seed"), [("plan", "big2"), ("trim", "big3"), ("advise", "big3"), ("explain", "big1")]
)
def test_long_table_has_the_rows_that_matter_most(name: str, seed: str) -> None:
    hint, show = COMMANDS[name]
    check(printed(show, made(hint, seed), "table", terminal=False), f"{name}-long")


def test_pages_and_the_notebook_show_what_their_golden_files_have(tmp_path: Path) -> None:
    parts = []
    for seed in ("one", "two", "three"):
        disks_seen = {f"{n}:/data": made(list[DiskSample], seed, f"disk{n}") for n in range(3)}
        alone, runs = made(Plan, seed), made(list[Run], seed)
        parts += [
            plan_page(alone, disks_seen, ["a note"], (), "prod"),
            plan_value(PlanOrigin(alone, None, None))._repr_html_(),
        ]
        saved = tmp_path / f"{seed}.json"
        saved.write_text(
            printed(COMMANDS["forecast-money"][1], made(tuple[Forecast, Bills], seed), "json", terminal=False)
        )
        with contextlib.suppress(SavedPlanError):  # a random forecast may be below zero
            parts.append(history_page(runs, disks_seen, [], "/state", forecast_parts(saved, None), {}))
        parts.append(history_page(runs, {}, [], "/state", (), {"c1": "prod"}))
    text = re.sub(r"(?s)<style>.*?</style>|(<svg [^>]*aria-label=\"[^\"]*\"[^>]*>).*?</svg>", r"\1", "\n".join(parts))
    check(text.replace("><", ">\n<"), "pages")
