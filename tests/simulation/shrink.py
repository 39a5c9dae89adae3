"""Makes a failing sequence short."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulation.scene import Step, ViolationError
from tests.simulation.world import run


def violation_of(rules: str, sequence: Sequence[Step]) -> str | None:
    """Return what a sequence violates, None where nothing."""
    try:
        run(rules, sequence)
    except ViolationError as error:
        return str(error)
    return None


def kind_of(violation: str) -> str:
    """Return what sort of violation it is, without names and numbers."""
    for kind in (
        "stands still",
        "below zero",
        "first offset is pending",
        "changed its protocol",
        "rebalancing",
        "pending elsewhere",
        "offsets topic is hidden",
        "regular expression",
        "partition that was added",
        "where one is remembered",
        "event time of other settings",
        "the report claims",
        "the report says",
        "gone since",
        "had yet to read",
        "no group says",
    ):
        if kind in violation:
            return kind
    return next((rule for rule in ("G1", "G3", "G7", "G9", "R1", "R2", "R3", "R4") if f"{rule}:" in violation), "other")


def fewest(sequence: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Return the steps of a failing sequence that it needs: they are left out, more at first, then one by one."""
    best = list(sequence)
    size = len(best) // 2
    while size:
        start = 0
        while start < len(best):
            shorter = best[:start] + best[start + size :]
            if fails(shorter):
                best = shorter
            else:
                start += size
        size //= 2
    return best


def shortened(rules: str, sequence: Sequence[Step]) -> list[Step]:
    """Return a shorter sequence that fails alike, with numbers as small as they may be."""
    kind = kind_of(violation_of(rules, sequence) or "")

    def fails(tried: Sequence[Step]) -> bool:
        found = violation_of(rules, tried)
        return found is not None and kind_of(found) == kind

    best = fewest(sequence, fails)
    for place, step in enumerate(best):
        for number in range(1, len(step)):
            for smaller in range(step[number]):
                tried = [*best[:place], (*step[:number], smaller, *step[number + 1 :]), *best[place + 1 :]]
                if fails(tried):
                    best, step = tried, tried[place]  # noqa: PLW2901
                    break
    return best
