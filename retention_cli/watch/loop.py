"""The loop: a pass every interval, back-off where passes fail, one line each, until it is asked to end."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

from retention_cli.trim.report import TrimReport
from retention_cli.watch.board import Board
from retention_cli.watch.failures import kind_of
from retention_cli.watch.leader import Leadership
from retention_cli.watch.lines import Folded, pass_line, stopped
from retention_cli.watch.one_pass import Passed

JITTER: Final = 0.1
"""The share of the interval by which a pass comes earlier or later, so that instances don't keep step."""
FIRST_BACKOFF_S: Final = 10.0
LEAST_LONGEST_BACKOFF_S: Final = 60.0
_LOOK_S: Final = 0.25
"""How often a waiting loop looks whether it leads now, or is to end."""


class Ending(Protocol):
    """Says whether the loop is to end (SIGTERM, SIGINT)."""

    @property
    def asked(self) -> bool:
        """Whether a signal came."""
        ...

    def uninterrupted(self) -> AbstractContextManager[None]:
        """While entered, a first signal waits; at its end it raises KeyboardInterrupt."""
        ...


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
class Loop:
    """Makes passes until it is asked to end.

    Args:
        make: makes one pass.
        board: where metrics and health are read from.
        leadership: a wait ends when this instance becomes the leader.
        interval_s: the time between passes.
        trims: whether passes trim.
        ending: says when to end.
        say: prints a line of the log.
        publish: called after each pass with nothing, to write the textfile; raises what :func:`kind_of` knows.
        on_report: called with the report of each trim.
        passes: end after so many; None: never.
    """

    make: Callable[[], Passed]
    board: Board
    leadership: Leadership
    interval_s: float
    trims: bool
    ending: Ending
    say: Callable[[str], None]
    publish: Callable[[], None]
    on_report: Callable[[TrimReport], None] = lambda _report: None
    passes: int | None = None
    _folded: Folded = field(default_factory=Folded)
    _failures: int = 0
    _number: int = 0
    _led: bool | None = None  # as last told: it may change within a pass, too

    def run(self) -> None:
        """Run. A KeyboardInterrupt that was asked for ends it; another one is raised."""
        try:
            while not self.ending.asked and (self.passes is None or self._number < self.passes):
                began = time.monotonic()
                self._one()
                self._publish()
                if self.passes is not None and self._number >= self.passes:
                    return
                took = time.monotonic() - began
                self._wait(pause_s(self.interval_s, took, self._failures, random.random()))  # noqa: S311  (jitter)
        except KeyboardInterrupt:
            if not self.ending.asked:
                raise

    def _one(self) -> None:
        self._number += 1
        self.board.tick()
        began = time.monotonic()
        try:
            passed = self.make()
        except Exception as error:
            kind = kind_of(error)
            if kind is None:  # a defect: better that a supervisor sees it and starts us anew
                raise
            self._failures += 1
            self._failed(kind, " ".join(str(error).split()))
            self.board.put(pass_s=time.monotonic() - began)
            return
        self._took_note(passed, time.monotonic() - began)
        gc.collect()  # the command line all but turns it off, for the sake of single runs
        if self._number == 1:
            gc.freeze()  # what was imported stays, and need not be looked through each time

    def _took_note(self, passed: Passed, seconds: float) -> None:
        board, report = self.board, passed.report
        board.tick()
        board.put(
            cluster=passed.plan.cluster_id,
            measured=passed.measured,
            planned_s=passed.plan.created_at_ms / 1000,
            pass_s=seconds,
        )
        if report is not None:
            gone = [row for row in report.rows if row.outcome == "trimmed"]
            board.put(
                trimmed_records=board.status.trimmed_records + sum(row.records for row in gone),
                trimmed_bytes=board.status.trimmed_bytes + sum(row.size_bytes or 0 for row in gone),
            )
            self.on_report(report)
            if report.audit_unshipped is not None:  # the pass has succeeded: the log has it all, and is sent again
                self.board.fail("shipping")
        for text in self._folded.notes(_notes(passed)):
            self.say(text)
        self.say(pass_line(self._number, passed, seconds, trims=self.trims))
        self._judge(passed)

    def _judge(self, passed: Passed) -> None:
        """Count what went wrong in a pass that was made; where nothing did, it has succeeded."""
        self._failures = 0
        report = passed.report
        if passed.broken is not None:
            self._failed("policy", str(passed.broken))
            return
        if passed.refused:
            self._failed("refused", "; ".join(reason.text for reason in passed.plan.refusals))
            return
        if passed.hold is not None and passed.hold.code in ("ledger", "audit"):
            self._failed("state", passed.hold.text)
            return
        if self.trims and (problem := self.leadership.problem) is not None:
            self._failed("election", problem)
            return
        if report is not None:
            if lost := report.count("failed") + report.count("unverified"):
                self.board.fail("partition", lost)
            if report.stopped_by is not None:
                raise report.stopped_by
            if not report.interrupted and (why := stopped(passed)) is not None:
                self._failed("election" if why.code == "leader" else "policy", why.text)
                return
            if report.audit_problem is not None:
                self._failed("state", f"the audit log is not whole: {report.audit_problem}")
                return
        self.board.succeed(time.time())
        if (line := self._folded.good()) is not None:
            self.say(line)

    def _failed(self, kind: str, text: str) -> None:
        self.board.fail(kind)
        if (line := self._folded.error(text)) is not None:
            self.say(f"failed: {line}")

    def _publish(self) -> None:
        try:
            self.publish()
        except Exception as error:
            if kind_of(error) is None:
                raise
            self.board.fail("textfile")
            self.say(f"failed: {' '.join(str(error).split())}")

    def _wait(self, seconds: float) -> None:
        """Wait; end at once when asked to, or when this instance has just become the leader."""
        if self._led is None:
            self._led = self.board.leads()
        until = time.monotonic() + seconds
        while not self.ending.asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(_LOOK_S, left))
            self.board.tick()
            if (leads := self.board.leads()) != self._led:
                self.say("leads now" if leads else "does not lead any more")
                self._led = leads
                if leads:
                    return


def _notes(passed: Passed) -> list[str]:
    broken = None if passed.report is None else passed.report.audit_broken
    unshipped = None if passed.report is None else passed.report.audit_unshipped
    texts = [note.text for note in passed.notes]
    texts += [] if unshipped is None else [f"the audit log is whole, its copy is not: {unshipped}"]
    return texts if broken is None else [*texts, f"the audit log is broken: {broken} (kretain history --verify)"]
