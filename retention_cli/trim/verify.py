"""What became of one partition of a trim: what its leader answered, against the log start that was read back. Pure.

DeleteRecords carries no condition, and success only says that the log starts at the offset or beyond. So what this trim
removed is told apart from what broker retention or another trimmer had removed before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.plan.target import Target
from retention_cli.trim.report import OutcomeName, TrimRow, row_of

Answer = int | RequestFailedError | None
"""The log start offset with which a leader answered success, the error, or None where no answer was waited for."""

_REFUSALS: Final = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "INVALID_REQUEST",
        "INVALID_TOPIC",
        "OFFSET_OUT_OF_RANGE",
        "POLICY_VIOLATION",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNSUPPORTED_VERSION",
    }
)
"""Errors that a broker answers before it touches its log.

Any other may come after: a leader moves its own log start first, then waits for its followers, and answers
REQUEST_TIMED_OUT or NOT_LEADER_FOR_PARTITION where that takes too long or it is deposed meanwhile.
"""


def refused(said: Answer) -> bool:
    """Return whether a leader's answer proves that it did nothing."""
    return isinstance(said, RequestFailedError) and said.answered and str(said).partition(" ")[0] in _REFUSALS


def judge(tp: TopicPartition, target: Target, said: Answer, start: int | None) -> TrimRow:
    """Return a partition's row of the report (docs/plan.md, outcomes).

    ``trimmed`` counts from the log start of the recheck to the target: never more than went, but by broker retention
    in between perhaps more than this trim's own share. ``gone`` (unchanged) and ``failed`` count nothing. Where no
    answer came, a log start that is the target to the record is taken for ours: only another trimmer with the same
    target could have moved it there, and that can't be told. Nor can a log that retention moved on while its leader was
    still waiting for the followers of this very request: that counts as gone.

    Args:
        tp: the partition.
        target: the offset asked for, and the decision behind it.
        said: what its leader answered.
        start: its log start offset as read back, None where it could not be.
    """
    wanted = target.offset
    reached = start is not None and start >= wanted
    if refused(said):
        if not reached:
            return _row(tp, target, "failed", start, Reason("delete", str(said)))
        text = f"the broker refused ({said}), and {_told_start(start)}"
        return _row(tp, target, "unchanged", start, Reason("gone", text))
    if isinstance(said, int):
        if start is None:
            text = "the broker said that it is done, but the log start offset could not be read back"
            return _row(tp, target, "unverified", start, Reason("verify", text))
        if not reached:
            text = f"the broker answered {said:,}, but the log still starts at {start:,}"
            return _row(tp, target, "failed", start, Reason("verify", text))
        if said > wanted and start > wanted:
            return _row(tp, target, "unchanged", start, Reason("gone", _told_start(start)))
    if start == wanted or (reached and said == wanted):  # what moved it on since the answer is no matter of ours
        return _row(tp, target, "trimmed", start)
    if reached:
        text = (
            f"{_what(said)}, and the log starts at {start:,}, beyond the offset asked for: whether this trim, broker "
            f"retention or another trimmer moved it can't be told"
        )
        return _row(tp, target, "unverified", start, Reason("verify", text))
    if isinstance(said, RequestFailedError) and said.answered and start is not None:
        return _row(tp, target, "failed", start, Reason("delete", str(said)))
    where = "could not be read back" if start is None else f"was still {start:,}"
    text = f"{_what(said)}, and the log start offset {where}: it may yet move"
    return _row(tp, target, "unverified", start, Reason("verify", text))


@dataclass(slots=True)
class Unanswered:
    """A run's requests of which it is not known whether they were carried out: they may be, after we have looked."""

    _sent: dict[TopicPartition, list[tuple[Target, Answer]]] = field(default_factory=dict)

    def note(self, tp: TopicPartition, target: Target, said: Answer) -> None:
        """Remember a request that came to ``unverified``."""
        self._sent.setdefault(tp, []).append((target, said))

    def forget(self, tp: TopicPartition) -> None:
        """Let go of a partition's: what became of it is known."""
        self._sent.pop(tp, None)

    def may_go(self, targets: Mapping[TopicPartition, Target]) -> Collection[Target]:
        """Return the farthest target per partition, of these and of what may yet be carried out (G6)."""
        found = dict(targets)
        for tp, sent in self._sent.items():
            mine = [found[tp]] if tp in found else []
            found[tp] = max((*mine, *(target for target, _said in sent)), key=lambda one: one.offset)
        return found.values()

    def settle(self, tp: TopicPartition, start: int | None) -> TrimRow | None:
        """Return what became of a partition's, now that its log starts there; None where there is none to tell of.

        Of several requests the one whose target is the log start did it, else the last is judged. What was not carried
        out after all is nothing to tell of.
        """
        sent = self._sent.get(tp)
        if not sent:
            return None
        target, said = next((one for one in sent if one[0].offset == start), sent[-1])
        row = judge(tp, target, said, start)
        if row.outcome != "unverified":
            self.forget(tp)
        return None if row.outcome == "failed" else row


def _told_start(start: int | None) -> str:
    return f"the log starts at {start:,}: broker retention or another trimmer moved it there, not this trim"


def _what(said: Answer) -> str:
    if said is None:
        return "no answer was waited for"
    if isinstance(said, int):
        return f"the broker answered {said:,}"
    if said.answered:
        return f"the broker answered {said}, as it may after it has moved its log"
    return f"no answer came ({said})"


def _row(tp: TopicPartition, target: Target, outcome: OutcomeName, start: int | None, *reasons: Reason) -> TrimRow:
    if outcome in ("trimmed", "unverified"):
        return row_of(tp, outcome, target.offset, start, reasons, target.records, target.size_bytes)
    return row_of(tp, outcome, target.offset, start, reasons)
