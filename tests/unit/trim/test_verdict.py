"""Who deleted it: what a leader answered against the log start that was read back (docs/plan.md, outcomes)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.wire.connections import error_named
from retention_cli.core.model import TopicPartition
from retention_cli.plan.target import Target
from retention_cli.trim.verify import Answer, Unanswered, judge
from tests.support.plans import row

TP = TopicPartition("orders", 0)
LOST = RequestFailedError("timed out", retriable=True)
DENIED = error_named(29, needs="DELETE")
LATE = RequestFailedError("REQUEST_TIMED_OUT", retriable=True, answered=True)


def asked_for(offset: int, log_start: int = 2) -> Target:
    return Target(offset, row(log_start=log_start, trim_to=offset, records=offset - log_start, size_bytes=100))


@pytest.mark.parametrize(
    ("said", "start", "outcome", "code", "words"),
    [
        # The broker answered success.
        (8, 8, "trimmed", None, ""),
        (8, 9, "trimmed", None, ""),  # retention went on behind ours
        (9, 9, "unchanged", "gone", "starts at 9: broker retention or another trimmer"),
        (9, 12, "unchanged", "gone", "starts at 12"),
        (8, None, "unverified", "verify", "could not be read back"),
        (9, None, "unverified", "verify", "could not be read back"),
        (8, 3, "failed", "verify", "answered 8, but the log still starts at 3"),
        # It refused before it touched its log.
        (DENIED, 8, "unchanged", "gone", "refused (this user needs DELETE on the topic (TOPIC_AUTHORIZATION_FAILED))"),
        (DENIED, 9, "unchanged", "gone", "not this trim"),
        (DENIED, 3, "failed", "delete", "TOPIC_AUTHORIZATION_FAILED"),
        (DENIED, None, "failed", "delete", "TOPIC_AUTHORIZATION_FAILED"),
        # It answered an error that may come after its own log has moved.
        (LATE, 8, "trimmed", None, ""),
        (LATE, 9, "unverified", "verify", "moved it is unknown"),
        (LATE, 3, "failed", "delete", "REQUEST_TIMED_OUT"),
        (LATE, None, "unverified", "verify", "REQUEST_TIMED_OUT"),
        # No answer came, or none was waited for.
        (LOST, 8, "trimmed", None, ""),
        (LOST, 9, "unverified", "verify", "beyond the offset asked for"),
        (LOST, 3, "unverified", "verify", "was still 3: it may yet move"),
        (LOST, None, "unverified", "verify", "timed out"),
        (None, 8, "trimmed", None, ""),
        (None, 9, "unverified", "verify", "no answer was waited for"),
        (None, None, "unverified", "verify", "no answer was waited for"),
    ],
)
def test_verdict_names_who_moved_the_log_start(
    said: Answer, start: int | None, outcome: str, code: str | None, words: str
) -> None:
    found = judge(TP, asked_for(8), said, start)
    assert (found.outcome, found.target, found.log_start) == (outcome, 8, start)
    assert [reason.code for reason in found.reasons] == ([] if code is None else [code])
    assert all(words in reason.text for reason in found.reasons)
    counted = (6, 100) if outcome in ("trimmed", "unverified") else (0, 0)
    assert (found.records, found.size_bytes) == counted, "what is gone, or may be, from the recheck's log start on"


@given(
    said=st.one_of(st.none(), st.sampled_from([LOST, DENIED, LATE]), st.integers(0, 20)),
    start=st.one_of(st.none(), st.integers(0, 20)),
    target=st.integers(3, 20),
)
def test_only_a_read_back_log_start_counts_as_trimmed(said: Answer, start: int | None, target: int) -> None:
    """Never trimmed below the target, nor on a refusal; never failed where the log start may be ours."""
    found = judge(TP, asked_for(target), said, start)
    if found.outcome == "trimmed":
        assert start is not None
        assert start >= target
        assert said is not DENIED
        assert target in (start, said)
    if found.outcome == "failed" and start is not None:
        assert start < target
    assert found.records <= target - 2


def test_unanswered_request_matching_the_log_start_counts() -> None:
    """The group went back between the two: the second asked for less."""
    sent = Unanswered()
    sent.note(TP, asked_for(8), LOST)
    sent.note(TP, asked_for(5), LOST)
    assert {target.offset for target in sent.may_go({})} == {8}, "the farther one may yet be carried out"
    assert {target.offset for target in sent.may_go({TP: asked_for(9)})} == {9}
    below = sent.settle(TP, 3)
    assert below is not None
    assert below.outcome == "unverified"
    found = sent.settle(TP, 8)
    assert found is not None
    assert (found.outcome, found.target, found.records) == ("trimmed", 8, 6)
    assert sent.settle(TP, 8) is None, "told once"


def test_request_that_was_not_executed_is_not_reported() -> None:
    sent = Unanswered()
    sent.note(TP, asked_for(8), LATE)
    assert sent.settle(TP, 3) is None
    assert not sent.may_go({})
