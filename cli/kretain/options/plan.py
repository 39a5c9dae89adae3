"""The options of ``kretain plan`` that say what becomes of the plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from kretain.flows.inventory import Inventories
from kretain.options.common import COMMON, OptionGroup, PlanOutput, option


@dataclass(frozen=True, slots=True)
class PlanFlags(OptionGroup):
    """How to make a plan, where to save it, and how to print it."""

    out: Annotated[
        Path | None,
        option(
            "--out",
            of="plan",
            metavar="FILE",
            help="Save the plan for kretain trim --plan FILE: JSON, or Parquet where it is called .parquet.",
        ),
    ] = None
    inventory: Inventories = None
    output: Annotated[PlanOutput, option("--output", "-o", panel=COMMON, help="How to print it.")] = "table"
    all_rows: Annotated[bool, option("--all", help="Every partition, however many there are.")] = False
    detailed_exitcode: Annotated[bool, option("--detailed-exitcode", help="Exit with 3 if the plan has changes.")] = (
        False
    )
    fail_on_hold: Annotated[bool, option("--fail-on-hold", help="Exit with 4 if partitions are on hold.")] = False
