"""G6: how much may be trimmed in a day, and in a run. Applies to all of a plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from retention_cli.core.model import Code, Reason
from retention_cli.core.units import format_bytes
from retention_cli.policy.settings import Limits


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of records, their bytes (None: unknown), and how many of them a consumer has yet to read."""

    records: int = 0
    size_bytes: int | None = 0
    unconsumed: int = 0

    def __add__(self, other: Amount) -> Amount:
        both = None if self.size_bytes is None or other.size_bytes is None else self.size_bytes + other.size_bytes
        return Amount(self.records + other.records, both, self.unconsumed + other.unconsumed)


def total(amounts: Iterable[Amount]) -> Amount:
    """Return the sum; its bytes are unknown if those of any amount are."""
    records, size_bytes, unconsumed = 0, 0, 0
    known = True
    for amount in amounts:
        records += amount.records
        unconsumed += amount.unconsumed
        if amount.size_bytes is None:
            known = False
        else:
            size_bytes += amount.size_bytes
    return Amount(records, size_bytes if known else None, unconsumed)


def over_limits(run: Amount, past_day: Amount, managed_records: int, limits: Limits) -> list[Reason]:
    """Return a reason for each limit that a run would exceed.

    Args:
        run: the amount that the run trims.
        past_day: the amount that other runs trimmed in the last 24 hours, from the audit log.
        managed_records: the sum of H − S over the managed partitions.
        limits: the policy's limits.
    """
    found: list[Reason] = []
    both = run + past_day
    spent = f" (with {past_day.records:,} in the last 24 hours)" if past_day.records else ""
    if run.records == 0:
        return found
    if limits.max_records is not None and both.records > limits.max_records:
        text = f"{run.records:,} records{spent} are more than limits.max.records, {limits.max_records:,}"
        found.append(Reason(Code.G6, text))
    if limits.max_bytes is not None:
        if both.size_bytes is None:
            found.append(Reason(Code.G6, "limits.max.bytes is set, and the bytes of some of these records are unknown"))
        elif both.size_bytes > limits.max_bytes:
            most = format_bytes(limits.max_bytes)
            text = f"{format_bytes(both.size_bytes)}{spent} are more than limits.max.bytes, {most}"
            found.append(Reason(Code.G6, text))
    if limits.max_percent is not None and run.records * 100 > limits.max_percent * managed_records:
        share = 100 * run.records / managed_records if managed_records else 100.0
        most = f"limits.max.percent is {limits.max_percent:g} %"
        text = f"the plan would delete {_percent(share, limits.max_percent)} % of the managed records; {most}"
        found.append(Reason(Code.G6, text))
    return found


def _percent(share: float, most: float) -> str:
    """Return a share in percent with as few digits as show that it is more than ``most``."""
    return next((text for digits in (0, 1) if float(text := f"{share:.{digits}f}") > most), f"{share:g}")
