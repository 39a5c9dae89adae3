"""What a partition leaves its groups: the same whoever was asked about before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retention_cli.core.model import Sample
from retention_cli.forecast.disks import R6, queue_of
from retention_cli.forecast.loss import Place
from retention_cli.forecast.rates import ENDLESS, Rate, Span
from retention_cli.forecast.steady import PartitionForecast, Retained, Seen, Terms
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.positions import Position, Positions
from retention_cli.policy.settings import Settings
from tests.support.facts import HOUR, NOW, Log
from tests.support.forecasts import disk, limits, queued

LOG = Log(start=3, stamps=[NOW - 5 * HOUR + number for number in range(30)])
FACTS = LOG.facts(Settings(forced_age_ms=6 * HOUR, unconsumed="trim"))
PART = PartitionForecast(Rate(0.1, 0.2, 0.3, HOUR), Span(10, 20), ENDLESS, Retained(ENDLESS), 0.0)


def place() -> Place:
    samples = (Sample(NOW - 9 * HOUR, 5), Sample(NOW - 3 * HOUR, 20), Sample(NOW - HOUR, 30))
    here = Seen(FACTS, samples, Sample(NOW, LOG.end))
    r6 = R6([(one := disk(400, FACTS.tp), queue_of(one, 50.0, {FACTS.tp: PART}, [queued(FACTS.tp, (50, 30))]))])
    settings = Settings(forced_age_ms=6 * HOUR, unconsumed="trim")
    return Place(here, PART, limits(retention_ms=12 * HOUR), settings, r6, Terms(60_000, HOUR, NOW))


def before(hours: int, offset: int) -> GroupMemory:
    """A group that stood at an offset so long ago."""
    tp = FACTS.tp
    return GroupMemory(
        NOW - hours * HOUR,
        ids={tp.topic: str(FACTS.topic.topic_id)},
        counted=Positions.at({(tp.topic, tp.partition): Position(offset, None)}),
    )


@given(
    st.lists(
        st.tuples(
            st.integers(0, LOG.end + 3),
            st.none() | st.builds(before, st.integers(0, 3), st.integers(0, LOG.end)),
        ),
        min_size=2,
        max_size=40,
    )
)
def test_cached_time_to_loss_is_never_reused_for_another_group(asked: list[tuple[int, GroupMemory | None]]) -> None:
    one = place()
    assert [one.left(*each) for each in asked] == [place().left(*each) for each in asked]
    assert len({one.left(at, None)[0].age_ms for at in (1, 10, 25, LOG.end)}) == 4, "it tells offsets apart"
