"""The options of ``kretain plan`` and ``trim`` that say what becomes of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from kretain.flows.inventory import Inventories
from kretain.options.common import (
    COMMON,
    AllPartitions,
    OptionGroup,
    OutputOption,
    PlanOutputOption,
    duration_ms,
    option,
)


@dataclass(frozen=True, slots=True)
class TrimFlags(OptionGroup):
    """How to carry a plan out, and how to print the report."""

    plan: Annotated[
        Path | None,
        option("--plan", of="trim", metavar="FILE", help="Carry out this saved plan, or less of it."),
    ] = None
    approval: Annotated[
        Path | None,
        option("--approval", metavar="FILE", panel=COMMON, help="Use this approval, not FILE.approval of --plan."),
    ] = None
    dry_run: Annotated[bool, option("--dry-run", help="Do everything except delete.")] = False
    yes: Annotated[bool, option("--yes", "-y", help="Skip the question. Required without a terminal.")] = False
    max_age: Annotated[
        int,
        option(
            "--max-age",
            metavar="DURATION",
            parser=duration_ms,
            help="Refuse an older saved plan. Default: 1h.",
            show_default=False,
        ),
    ] = "1h"  # type: ignore[assignment]  # (the option's parser reads it)
    max_partitions: Annotated[
        int | None, option("--max-partitions", metavar="N", min=1, help="Trim at most this many partitions.")
    ] = None
    wait_lock: Annotated[
        int,
        option(
            "--wait-lock",
            metavar="DURATION",
            parser=duration_ms,
            help="Wait this long for another trim. Default: 0s.",
            show_default=False,
        ),
    ] = "0s"  # type: ignore[assignment]  # (the option's parser reads it)
    wait: Annotated[
        bool,
        option("--wait", help="Wait until brokers have freed the disk space (R6)."),
    ] = False
    wait_at_most: Annotated[
        int,
        option(
            "--wait-at-most",
            metavar="DURATION",
            parser=duration_ms,
            help="Stop waiting after this long (exit 5). Default: 15m.",
            show_default=False,
        ),
    ] = "15m"  # type: ignore[assignment]  # (the option's parser reads it)
    fail_on_hold: Annotated[bool, option("--fail-on-hold", help="Exit with 4 if partitions were held.")] = False
    inventory: Inventories = None
    output: OutputOption = "table"
    all_rows: AllPartitions = False


@dataclass(frozen=True, slots=True)
class PlanFlags(OptionGroup):
    """How to make a plan, where to save it, and how to print it."""

    out: Annotated[
        Path | None,
        option(
            "--out",
            of="plan",
            metavar="FILE",
            help="Save the plan (.json or .parquet) for trim --plan.",
        ),
    ] = None
    key: Annotated[
        Path | None,
        option("--key", metavar="FILE", help="Sign the plan as its requester, with this private key."),
    ] = None
    evidence: Annotated[
        bool, option("--evidence", of="plan", help="Record what it is based on, for replay, explain --run and verify.")
    ] = False
    inventory: Inventories = None
    output: PlanOutputOption = "table"
    all_rows: AllPartitions = False
    detailed_exitcode: Annotated[
        bool, option("--detailed-exitcode", help="Exit with 3 if there is something to trim.")
    ] = False
    fail_on_hold: Annotated[bool, option("--fail-on-hold", help="Exit with 4 if partitions are on hold.")] = False
