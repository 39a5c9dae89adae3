"""What was verified of runs (``kretain verify``), and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kretain.render.output import MOST, Line, Part, show
from retention_cli.core.units import count

if TYPE_CHECKING:  # it imports pyarrow's part
    from retention_cli.evidence.verify import Verdict

FORMAT: Final = "kretain.verify/v1"


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
    cells = [
        {**row, "findings": [f"{place}: {text}" for place, text in one.findings]}
        for row, one in zip(rows, found, strict=True)
    ]
    people = [part for one in found for part in _told(one)]
    show(
        output, {"format": FORMAT}, "runs", rows, lambda: people, ("run", "rows", "requests", "findings", "more"), cells
    )


def _told(one: Verdict) -> Iterator[Part]:
    for place, text in one.findings[:MOST]:
        yield Line(f"{place}: {text}", "red")
    if (left := len(one.findings) + one.more - MOST) > 0:
        yield Line(f"{one.run}: and {count(left, 'more finding')}", "red")
    if not one.findings:
        if one.plan:
            yield f"{one.run}: proven. {count(one.rows, 'decision')} of a plan made again; no audit log names plans."
            return
        rows, requests = count(one.rows, "decision"), count(one.requests, "request")
        yield f"{one.run}: proven. {rows} made again, {requests} within plan and facts; the audit log is complete."
