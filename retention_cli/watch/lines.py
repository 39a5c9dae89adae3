"""The lines of the log: one a pass, one an error, and repeated ones folded. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from retention_cli.core.model import Decision, Reason
from retention_cli.core.units import format_bytes
from retention_cli.watch.one_pass import Passed

_NAMED: Final = 3
_KEPT: Final = 200
"""How many notes are remembered as told."""


@dataclass(slots=True)
class Folded:
    """Lets an error through at its 1st, 2nd, 4th, 8th … time in a row, and each note once while it lasts."""

    _last: str | None = None
    _times: int = 0
    _notes: frozenset[str] = field(default_factory=frozenset)

    def error(self, text: str) -> str | None:
        """Return the line for an error, None if it was told often enough."""
        self._times = self._times + 1 if text == self._last else 1
        self._last = text
        if self._times & (self._times - 1):
            return None
        return text if self._times == 1 else f"{text} ({self._times:,} times in a row)"

    def good(self) -> str | None:
        """Record that nothing went wrong. Return a line if that is new."""
        times, self._last, self._times = self._times, None, 0
        return None if times < 2 else f"well again, after {times:,} failures in a row"

    def notes(self, notes: Sequence[str]) -> Iterator[str]:
        """Yield the notes that the last pass did not have."""
        texts = list(dict.fromkeys(notes))[:_KEPT]
        yield from (text for text in texts if text not in self._notes)
        self._notes = frozenset(texts)


def pass_line(number: int, passed: Passed, seconds: float, *, trims: bool) -> str:
    """Return what a pass did: ``pass 12: trimmed 1,200 records (90 KiB) of 4 partitions; 3 kept; 1 on hold (F2 1)``."""
    plan = passed.plan
    totals = plan.totals
    rest = [f"{n:,} {word}" for n, word in ((totals.keep, "kept"), (totals.skip, "skipped")) if n]
    if totals.hold:
        rest.append(f"{totals.hold:,} on hold ({_by_code(plan.decisions)})")
    if short := [one for one in plan.disks if one.short_bytes]:
        missing = format_bytes(sum(one.short_bytes for one in short))
        rest.append(f"{len(short):,} disk{'' if len(short) == 1 else 's'} above the ceiling, short by {missing}")
    if not trims:
        rest.append("dry")
    return f"pass {number:,}: {'; '.join([*_doing(passed), *rest])}; {seconds:.1f} s"


def _doing(passed: Passed) -> list[str]:
    totals, report = passed.plan.totals, passed.report
    planned = f"{_amount(totals.records, totals.size_bytes)} of {_partitions(totals.trim)}"
    if report is None:
        if not totals.trim:
            said = ["nothing to trim"]
            return said if passed.hold is None or passed.hold.code == "dry" else [*said, passed.hold.text]
        if passed.hold is None or passed.hold.code == "dry":
            return [f"would trim {planned}"]
        return [f"did not trim {planned}: {passed.hold.text}"]
    done = report.trimmed
    said = [f"trimmed {_amount(done.records, done.size_bytes)} of {_partitions(report.count('trimmed'))}"]
    for word in ("failed", "unverified"):
        if number := report.count(word):
            reason = next((row.reasons[0].text for row in report.rows if row.outcome == word and row.reasons), "")
            said.append(f"{number:,} {word} ({reason})")
    if held := report.count("held") - totals.hold:
        said.append(f"{held:,} held at the recheck")
    if report.interrupted:
        said.append("interrupted, the rest is left")
    elif (why := stopped(passed)) is not None:
        said.append(f"stopped: {why.text}")
    if passed.narrowed is not None and (passed.narrowed.cut or passed.narrowed.later):
        said.append(f"{passed.narrowed.cut + passed.narrowed.later:,} at the pass's ceiling, left for later passes")
    said.append(f"run {report.run}")
    return said


def stopped(passed: Passed) -> Reason | None:
    """Return why a trim was stopped between batches (:class:`~retention_cli.trim.batches.StopError`)."""
    rows = () if passed.report is None else passed.report.rows
    codes = ("leader", "policy")  # of those that stop a trim, and not of a topic
    return next(
        (
            row.reasons[0]
            for row in rows
            if row.outcome == "unchanged" and row.reasons[:1] and row.reasons[0].code in codes
        ),
        None,
    )


def _by_code(decisions: Sequence[Decision]) -> str:
    codes: dict[str, int] = {}
    for one in decisions:
        if one.action == "hold" and one.reasons:
            codes[one.reasons[0].code] = codes.get(one.reasons[0].code, 0) + 1
    most = sorted(codes.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join([*(f"{code} {n:,}" for code, n in most[:_NAMED]), *(["…"] if len(most) > _NAMED else [])])


def _amount(records: int, size_bytes: int | None) -> str:
    about = "" if size_bytes is None else f" ({format_bytes(size_bytes)})"
    return f"{records:,} record{'' if records == 1 else 's'}{about}"


def _partitions(number: int) -> str:
    return f"{number:,} partition{'' if number == 1 else 's'}"
