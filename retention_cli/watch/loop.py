"""The loop: a pass every interval, back-off where passes fail, until it is asked to end.

Its log has one line a pass and one an error; repeated ones are folded.
"""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from retention_cli.core.model import Decision, Reason
from retention_cli.core.printable import printable
from retention_cli.core.units import count, format_bytes
from retention_cli.plan.value import having
from retention_cli.trim.report import TrimReport
from retention_cli.watch.board import Board, Say, kind_of
from retention_cli.watch.leader import Leadership
from retention_cli.watch.notify import Held, Notice, amount, of_protection, of_report
from retention_cli.watch.one_pass import Passed

JITTER: Final = 0.1
"""The share of the interval by which a pass comes earlier or later, so that instances don't keep step."""
FIRST_BACKOFF_S: Final = 10.0
LEAST_LONGEST_BACKOFF_S: Final = 60.0
_NAMED: Final = 3
_NOTES_AT_MOST: Final = 200
"""How many notes are remembered as logged."""
_POLL_S: Final = 0.25
"""How often a waiting loop looks whether it leads now, or is to end."""


def pause_s(interval_s: float, took_s: float, failures: int, chance: float) -> float:
    """Return how long to wait before the next pass (s).

    After passes that could not be made it is 10 s (a shorter interval: that), twice as long each time, up to the
    interval or a minute.

    Args:
        interval_s: the time from one pass's beginning to the next one's.
        took_s: how long the last pass took.
        failures: how many passes in a row have failed.
        chance: a random number from 0 to 1, for the jitter.
    """
    jitter = 1 + JITTER * (2 * chance - 1)
    if failures:
        longest = max(interval_s, LEAST_LONGEST_BACKOFF_S)
        return min(longest, min(interval_s, FIRST_BACKOFF_S) * 2.0 ** min(failures - 1, 30)) * jitter
    return max(interval_s * jitter - took_s, min(1.0, interval_s / 10))


@dataclass(slots=True)
class Folded:
    """Lets an error through at its 1st, 2nd, 4th, 8th … time in a row, and each note once while it lasts."""

    _last: str | None = None
    _times: int = 0
    _notes: frozenset[str] = field(default_factory=frozenset)

    def error(self, text: str) -> str | None:
        """Return the line for an error, None if it was logged often enough."""
        self._times = self._times + 1 if text == self._last else 1
        self._last = text
        if self._times & (self._times - 1):
            return None
        return text if self._times == 1 else f"{text} ({self._times:,} times in a row)"

    def good(self) -> str | None:
        """Record that nothing went wrong. Return a line if that is new."""
        times, self._last, self._times = self._times, None, 0
        return None if times < 2 else f"recovered after {times:,} failures"

    def notes(self, notes: Sequence[str]) -> Iterator[str]:
        """Yield the notes that the last pass did not have."""
        texts = list(dict.fromkeys(notes))[:_NOTES_AT_MOST]
        yield from (text for text in texts if text not in self._notes)
        self._notes = frozenset(texts)


@dataclass(slots=True)
class Loop:
    """Makes passes until it is asked to end.

    Args:
        make: makes one pass.
        board: where metrics and health are read from.
        leadership: a wait ends when this instance becomes the leader.
        interval_s: the time between passes.
        trims: whether passes trim.
        stop_requested: returns whether it is to end (SIGTERM, SIGINT).
        say: prints a line of the log.
        publish: called after each pass with nothing, to write the textfile; raises what :func:`kind_of` knows.
        on_report: called with the report of each trim.
        notify: called with what may be posted to the policy's webhook.
    """

    make: Callable[[], Passed]
    board: Board
    leadership: Leadership
    interval_s: float
    trims: bool
    stop_requested: Callable[[], bool]
    say: Say
    publish: Callable[[], None]
    on_report: Callable[[TrimReport], None] = lambda _report: None
    notify: Callable[[Notice], None] = lambda _notice: None
    _folded: Folded = field(default_factory=Folded)
    _held: Held = field(default_factory=Held)
    _codes: frozenset[str] = frozenset()  # for which partitions were on hold in the last pass
    _lost: bool = False
    _unprotected: str | None = None
    _failures: int = 0
    _number: int = 0
    _led: bool | None = None  # as last logged: it may change within a pass, too

    def run(self) -> None:
        """Run. A KeyboardInterrupt that was asked for ends it; another one is raised."""
        try:
            while not self.stop_requested():
                began = time.monotonic()
                self._one()
                self._publish()
                jitter = random.random()  # noqa: S311
                self._wait(pause_s(self.interval_s, time.monotonic() - began, self._failures, jitter))
        except KeyboardInterrupt:
            if not self.stop_requested():
                raise

    def _one(self) -> None:
        self._number += 1
        self.board.tick()
        began = time.monotonic()
        try:
            passed = self.make()
        except Exception as error:
            kind = kind_of(error)
            if kind is None:  # a defect: better that a supervisor sees it and restarts us
                raise
            self._failures += 1
            self._failed(kind, " ".join(str(error).split()))
            self.board.pass_s = time.monotonic() - began
            return
        self._took_note(passed, time.monotonic() - began)
        gc.collect()  # the command line all but turns it off, for the sake of single runs

    def _took_note(self, passed: Passed, seconds: float) -> None:
        board, report = self.board, passed.report
        board.tick()
        board.cluster, board.measured = passed.plan.cluster_id, passed.measured
        board.planned_s, board.pass_s = passed.plan.created_at_ms / 1000, seconds
        if report is not None:
            gone = [row for row in report.rows if row.outcome == "trimmed"]
            board.trimmed_records += sum(row.records for row in gone)
            board.trimmed_bytes += sum(row.size_bytes or 0 for row in gone)
            self.on_report(report)
            if report.audit_unshipped is not None:  # the pass has succeeded: the log has it all, and is sent again
                self.board.fail("shipping")
        held = _held_first(passed.plan.decisions)
        new = [f"on hold, {c}: {one.tp}: {one.reasons[0].text}" for c, one in held.items() if c not in self._codes]
        self._codes = frozenset(held)
        for text in [*self._folded.notes(_notes(passed)), *new]:
            self.say(text)
        self.say(
            pass_line(self._number, passed, seconds, trims=self.trims),
            "pass",
            **pass_facts(self._number, passed, seconds),
        )
        self._failures = 0
        self._notify(passed)
        if (wrong := self._wrong_with(passed)) is not None:
            self._failed(*wrong)
            return
        self.board.succeed(time.time())
        if (again := self._folded.good()) is not None:
            self.say(again, "recovered")

    @property
    def _acts(self) -> bool:
        """Whether this instance posts about plans: one that stands by leaves that to the leader."""
        return not self.trims or self.board.leads()

    def _notify(self, passed: Passed) -> None:
        """Post what a pass did; failures once in a row."""
        held = self._held.take_in(passed.plan.decisions, passed.plan.created_at_ms, passed.plan.cluster_id)
        if held is not None and self._acts:
            self.notify(held)
        found = [] if passed.report is None else of_report(passed.report)
        for notice in found:
            if notice.event != "failed" or not self._lost:
                self.notify(notice)
        self._lost = any(notice.event == "failed" for notice in found)
        if (unprotected := _unprotected(passed)) is not None:
            self.board.fail("protect", max(1, 0 if passed.protected is None else len(passed.protected.failed)))
            if unprotected.text != self._unprotected:
                self.notify(unprotected)
        self._unprotected = None if unprotected is None else unprotected.text

    def _wrong_with(self, passed: Passed) -> tuple[str, str] | None:
        """Return what went wrong in a pass that was made, its kind and text; None if it has succeeded."""
        report = passed.report
        if passed.broken is not None:
            return "policy", str(passed.broken)
        if passed.refused:
            return "refused", "; ".join(reason.text for reason in passed.plan.refusals)
        if (unprotected := _unprotected(passed)) is not None:
            return "protect", unprotected.text
        if passed.hold is not None and passed.hold.code in ("ledger", "audit"):
            return "state", passed.hold.text
        if (problem := self.leadership.problem) is not None:
            return "election", problem
        if report is not None:
            if lost := report.count("failed") + report.count("unverified"):
                self.board.fail("partition", lost)
            if report.stopped_by is not None:
                raise report.stopped_by
            if not report.interrupted and (why := stopped(passed)) is not None:
                return "election" if why.code == "leader" else "policy", why.text
            if report.audit_problem is not None:
                return "state", f"the audit log is incomplete: {report.audit_problem}"
        return None

    def _failed(self, kind: str, text: str) -> None:
        if kind != "protect":  # which is counted and posted along with other failures
            self.board.fail(kind)
        if (line := self._folded.error(text)) is not None:
            self.say(f"failed: {line}", "failed", kind=kind, failures=self._failures)
        if line == text and kind != "protect" and (kind != "refused" or self._acts):  # the first in a row
            self.notify(Notice("refused" if kind == "refused" else "failed", text, self.board.cluster, {"kind": kind}))

    def _publish(self) -> None:
        try:
            self.publish()
        except Exception as error:
            if kind_of(error) is None:
                raise
            self.board.fail("textfile")
            self.say(f"failed: {' '.join(str(error).split())}", "failed", kind="textfile")

    def _wait(self, seconds: float) -> None:
        """Wait; end at once when asked to, or when this instance has just become the leader."""
        if self._led is None:
            self._led = self.board.leads()
        until = time.monotonic() + seconds
        while not self.stop_requested() and (left := until - time.monotonic()) > 0:
            time.sleep(min(_POLL_S, left))
            self.board.tick()
            if (leads := self.board.leads()) != self._led:
                self.say("leads now" if leads else "no longer leads", "leader", leads=leads)
                self._led = leads
                if leads:
                    return


def _unprotected(passed: Passed) -> Notice | None:
    """Return what to post where topics' own retention could not be looked at, or a setting not be changed."""
    if passed.unprotected is not None:
        return Notice("unprotected", f"protect: {' '.join(str(passed.unprotected).split())}", passed.plan.cluster_id)
    return next(iter([] if passed.protected is None else of_protection(passed.protected)), None)


def _notes(passed: Passed) -> list[str]:
    broken = None if passed.report is None else passed.report.audit_broken
    unshipped = None if passed.report is None else passed.report.audit_unshipped
    texts = [note.text for note in passed.notes]
    if (passed.broken is not None or passed.refused) and (unprotected := _unprotected(passed)) is not None:
        texts.append(unprotected.text)
    texts += [] if unshipped is None else [f"the audit log is complete, but its copy is not: {unshipped}"]
    return texts if broken is None else [*texts, f"the audit log is broken: {broken} (kretain history --verify)"]


def pass_line(number: int, passed: Passed, seconds: float, *, trims: bool) -> str:
    """Return what a pass did: ``pass 12: trimmed 1,200 records (90 KiB) of 4 partitions; 3 kept; 1 on hold (F2 1)``."""
    plan = passed.plan
    totals = plan.totals
    rest = [f"{n:,} {word}" for n, word in ((totals.keep, "kept"), (totals.skip, "skipped")) if n]
    if totals.hold:
        rest.append(f"{totals.hold:,} on hold ({_by_code(plan.decisions)})")
    if short := [one for one in plan.disks if one.short_bytes]:
        rest.append(
            f"{count(len(short), 'disk')} above the ceiling, short by "
            f"{format_bytes(sum(one.short_bytes for one in short))}"
        )
    if passed.protected is not None:
        rest.append(f"{count(passed.protected.raised, 'setting')} raised")
    if not trims:
        rest.append("dry run")
    return f"pass {number:,}: {'; '.join([*_doing(passed), *rest])}; {seconds:.1f} s"


def pass_facts(number: int, passed: Passed, seconds: float) -> dict[str, object]:
    """Return what a pass did as the keys of a JSON line (docs/watch.md, The log as JSON)."""
    totals, report = passed.plan.totals, passed.report
    trimmed: dict[str, object] = {}
    if report is not None:
        done = report.trimmed
        trimmed = {
            "run": report.run,
            "trimmed": {
                "partitions": report.count("trimmed"),
                "records": done.records,
                "bytes": done.size_bytes,
                **{word: report.count(word) for word in ("held", "failed", "unverified")},
            },
        }
    return {
        "pass": number,
        "cluster_id": passed.plan.cluster_id,
        "seconds": round(seconds, 3),
        "planned": {"partitions": totals.trim, "records": totals.records, "bytes": totals.size_bytes},
        "keep": totals.keep,
        "hold": totals.hold,
        "skip": totals.skip,
        **({} if passed.protected is None else {"raised": passed.protected.raised}),
        "holds": {code: held for (code,), held in passed.measured["holds"].items()},
        "not_trimmed": None if passed.hold is None else {"code": passed.hold.code, "text": printable(passed.hold.text)},
        **trimmed,
    }


def _doing(passed: Passed) -> list[str]:
    totals, report = passed.plan.totals, passed.report
    planned = f"{amount(totals.records, totals.size_bytes)} of {count(totals.trim, 'partition')}"
    if report is None:
        return _not_done(planned if totals.trim else None, passed.hold)
    done = report.trimmed
    parts = [f"trimmed {amount(done.records, done.size_bytes)} of {count(report.count('trimmed'), 'partition')}"]
    for word in ("failed", "unverified"):
        if number := report.count(word):
            reason = next((row.reasons[0].text for row in report.rows if row.outcome == word and row.reasons), "")
            parts.append(f"{number:,} {word} ({reason})")
    if later := report.count("held") - totals.hold:
        parts.append(f"{later:,} held at the recheck")
    if report.interrupted:
        parts.append("interrupted; the rest is left")
    elif (why := stopped(passed)) is not None:
        parts.append(f"stopped: {why.text}")
    if passed.narrowed is not None and (passed.narrowed.cut or passed.narrowed.later):
        parts.append(f"{passed.narrowed.cut + passed.narrowed.later:,} beyond this pass's limit, left for later passes")
    parts.append(f"run {report.run}")
    return parts


def _not_done(planned: str | None, hold: Reason | None) -> list[str]:
    """Return what a pass says that trimmed nothing: what it ``planned``, if anything, and why it did not do that."""
    held = None if hold is None or hold.code == "dry" else hold.text
    if planned is None:
        return ["nothing to trim"] if held is None else ["nothing to trim", held]
    return [f"would trim {planned}" if held is None else f"did not trim {planned}: {held}"]


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


def _held_first(decisions: Sequence[Decision]) -> dict[str, Decision]:
    held: dict[str, Decision] = {}
    for one in having(decisions, "hold", reasons=True):
        held.setdefault(one.reasons[0].code, one)
    return held


def _by_code(decisions: Sequence[Decision]) -> str:
    most = sorted(
        Counter(one.reasons[0].code for one in having(decisions, "hold", reasons=True)).items(),
        key=lambda pair: (-pair[1], pair[0]),
    )
    return ", ".join([*(f"{code} {n:,}" for code, n in most[:_NAMED]), *(["…"] if len(most) > _NAMED else [])])
