"""The options of ``kretain plan`` that say what becomes of the plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from kretain.flows.inventory import Inventories
from kretain.options.common import AllPartitions, OptionGroup, PlanOutputOption, option


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
