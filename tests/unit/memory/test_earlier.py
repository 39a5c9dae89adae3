"""What is still to be asked of memories that another one took the place of (F5, M2)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.log_offsets import Found, NotFound
from retention_cli.core.model import Sample, Unknown
from retention_cli.memory.partition import Earlier, PartitionMemory, joined, pending
from retention_cli.observe.lineage import Cut, prove

_some = st.lists(
    st.builds(Earlier, st.integers(0, 3), st.integers(0, 3), st.integers(0, 9), st.booleans()),
    max_size=7,
)


@given(_some, _some)
def test_earlier_logs_merge_to_the_same_in_either_order_and_stay_bounded(
    some: list[Earlier], others: list[Earlier]
) -> None:
    both = joined([*some, *others])
    assert both == joined([*others, *some]) == joined(both)
    assert len(both) <= 8
    memory = PartitionMemory(earlier=both)
    assert PartitionMemory.from_bytes(memory.as_bytes()) == memory
    settled = [one for one in both if one.settled]
    assert not [one for one in pending(both) if any(other.settles(one) for other in settled)]


@given(_some)
def test_unanswered_question_about_an_earlier_log_survives_a_merge(some: list[Earlier]) -> None:
    """Each is settled, or asked about as it is, or by a lower epoch and up to a larger offset."""
    both = joined(some)
    for one in pending(some):
        by_answer = any(other.settles(one) for other in some)
        asked = any(
            o.proving_epoch <= one.proving_epoch and o.reach >= one.reach and o.leader_epoch >= one.leader_epoch
            for o in pending(both)
        )
        assert by_answer or asked


def memory(epoch: int, *marks: int) -> PartitionMemory:
    found = PartitionMemory()
    found.continue_at(epoch, 0, 0, last_epoch=epoch)
    for number, mark in enumerate(marks):
        found.add_sample(Sample(number, mark))
    return found


def test_memory_derived_from_an_earlier_one_asks_nothing_of_it() -> None:
    earlier = memory(0, 12)
    later = memory(0, 12)
    assert prove(later, 1, 0, 18, {0: Found(12)}, 5) is None
    assert not pending(later.merged(earlier).earlier)
    assert later.covers(earlier)
    earlier.add_sample(Sample(9, 15))  # which the later one never knew of
    assert pending(later.merged(earlier).earlier) == [Earlier(0, 0, 15)]
    assert later.merged(earlier) == earlier.merged(later)
    assert not later.covers(earlier)


def test_truncation_of_the_earlier_log_is_looked_up_and_later_samples_stay() -> None:
    """M2: of commits that were seen to count under the later epoch nothing follows."""
    both = memory(1, 18).merged(memory(0, 12))
    assert isinstance(prove(both, 1, 0, 18, {}, 5), Unknown), "nobody asked (M4)"
    assert isinstance(prove(both, 1, 0, 18, {0: RequestFailedError("no", retriable=True)}, 5), Unknown)
    assert prove(both, 1, 0, 18, {0: Found(6)}, 5) == Cut(6, 0, until=0)
    assert both.high_watermark == 18
    assert not pending(both.earlier)
    assert prove(both, 1, 0, 18, {}, 6) is None, "it is asked once"


def test_lowest_of_several_truncations_counts_for_all_affected_epochs() -> None:
    both = memory(5, 18).merged(memory(0, 12)).merged(memory(2, 14))
    assert prove(both, 5, 0, 18, {0: Found(6), 2: Found(9)}, 5) == Cut(6, 0, until=2)
    both = memory(5, 18).merged(memory(0, 12))
    assert prove(both, 6, 0, 18, {0: Found(12), 5: Found(15)}, 5) == Cut(15, 5), "its own, of all commits"
    both = memory(5, 18).merged(memory(0, 12))
    assert prove(both, 6, 0, 18, {0: NotFound(), 5: Found(15)}, 5) == Cut(0, 5)


def test_high_watermark_that_fell_between_two_looks_is_asked_up_to_the_higher_one() -> None:
    """The lower look may be the earlier one: its time is only known not to be too early (G3). None missed a cut (M2)."""
    farther, later = (PartitionMemory(leader_epoch=3, last_epoch=2) for _ in range(2))
    farther.add_sample(Sample(1_000, 12))
    later.add_sample(Sample(2_000, 6))
    both = later.merged(farther)
    assert both == farther.merged(later)
    assert both.merged(farther) == both.merged(later) == both
    assert (both.high_watermark, pending(both.earlier)) == (6, [Earlier(2, 3, 12)])
    later.add_sample(Sample(3_000, 12))
    assert not later.merged(farther).earlier
