"""The options of ``kretain trim`` that say how a plan is carried out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from kretain.flows.inventory import Inventories
from kretain.options.common import COMMON, OptionGroup, Output, duration_ms, option


@dataclass(frozen=True, slots=True)
class TrimFlags(OptionGroup):
    """How to carry a plan out, and how to print the report."""

    plan: Annotated[
        Path | None,
        option(
            "--plan", of="trim", metavar="FILE", help="Carry out a saved plan. It is decided afresh, and only narrowed."
        ),
    ] = None
    dry_run: Annotated[bool, option("--dry-run", help="Rehearse: everything but the deletes.")] = False
    yes: Annotated[
        bool, option("--yes", "-y", help="Don't ask. Without a terminal, trim refuses unless this is given.")
    ] = False
    max_age: Annotated[
        int,
        option(
            "--max-age",
            metavar="DURATION",
            parser=duration_ms,
            help="How old a saved plan may be. Default: 1h.",
            show_default=False,
        ),
    ] = "1h"  # type: ignore[assignment]  # (the option's parser reads it)
    max_partitions: Annotated[
        int | None, option("--max-partitions", metavar="N", min=1, help="Trim these few first.")
    ] = None
    wait_lock: Annotated[
        int,
        option(
            "--wait-lock",
            metavar="DURATION",
            parser=duration_ms,
            help="Wait so long for another trim of this cluster to end. Default: don't, and refuse.",
            show_default=False,
        ),
    ] = "0s"  # type: ignore[assignment]  # (the option's parser reads it)
    wait: Annotated[
        bool,
        option("--wait", help="Wait until the brokers have given back what a ceiling for disks asked for."),
    ] = False
    wait_at_most: Annotated[
        int,
        option(
            "--wait-at-most",
            metavar="DURATION",
            parser=duration_ms,
            help="How long --wait waits; then it is said what is missing, and left with 5. Default: 15m.",
            show_default=False,
        ),
    ] = "15m"  # type: ignore[assignment]  # (the option's parser reads it)
    fail_on_hold: Annotated[bool, option("--fail-on-hold", help="Exit with 4 if partitions were held.")] = False
    inventory: Inventories = None
    output: Annotated[Output, option("--output", "-o", panel=COMMON, help="How to print the report.")] = "table"
    all_rows: Annotated[bool, option("--all", help="Every partition, however many there are.")] = False
