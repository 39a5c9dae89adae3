"""Partitions made of plain records, the facts that a perfect reading of them would give, and policies of a few lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import strategies as st

from retention_cli.core.model import EventMax, Floor, LookUp, Maybe, PartitionFacts, Reason, Sample, TopicFacts, Unknown
from retention_cli.decide.topic_rules import TopicRules, Wanted
from retention_cli.policy.load import parse_policy
from retention_cli.policy.settings import Settings

NOW = 1_800_000_000_000
HOUR = 3_600_000
UNKNOWN = Unknown.because("F4", "no group")
T = TypeVar("T")


def known(value: T | Unknown | None) -> T:
    """Return a fact that is there and known."""
    assert value is not None
    assert not isinstance(value, Unknown)
    return value


def why(value: object) -> str:
    """Return why a fact is unknown; nothing where it is known."""
    return value.reasons[0].text if isinstance(value, Unknown) else ""


def topic(name: str = "orders", **more: object) -> TopicFacts:
    values: dict[str, object] = {
        "topic_id": "id-1",
        "internal": False,
        "cleanup_policy": frozenset({"delete"}),
        "retention_ms": -1,
        "timestamp_type": "CreateTime",
    }
    return TopicFacts(name, **(values | more))  # type: ignore[arg-type]


@dataclass
class Log:
    """A partition: the log start offset, and the timestamps of the records from there on."""

    start: int
    stamps: Sequence[int]
    stable: int | None = None
    floor: Maybe[int] = field(default_factory=lambda: UNKNOWN)
    written: Sequence[int] | None = None
    watched: Sequence[int] = ()
    remembered: int | None = None

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What kretain would have seen of H at the times at which it looked."""
        written = self.written or ()
        return tuple(Sample(at, self.start + sum(one <= at for one in written)) for at in sorted(self.watched))

    @property
    def newest(self) -> int | None:
        """maxEventTime: the largest that ever was."""
        return max([*self.stamps, *(() if self.remembered is None else (self.remembered,))], default=None)

    @property
    def end(self) -> int:
        return self.start + len(self.stamps)

    def offset_at(self, time_ms: int) -> int:
        """The definition: the first offset with a timestamp of at least ``time_ms``, else H."""
        return next((self.start + n for n, stamp in enumerate(self.stamps) if stamp >= time_ms), self.end)

    def facts(
        self, settings: Settings, about: TopicFacts | None = None, lookups: Mapping[int, Maybe[LookUp]] | None = None
    ) -> PartitionFacts:
        floor: Maybe[Floor] = self.floor if isinstance(self.floor, Unknown) else Floor(self.floor, "group:a")
        answers: dict[int, Maybe[LookUp]] = dict(lookups or {})
        data: dict[int, Maybe[LookUp]] = {}
        facts = PartitionFacts(
            topic=about or topic(),
            partition=0,
            log_start=self.start,
            high_watermark=self.end,
            last_stable_offset=self.end if self.stable is None else self.stable,
            floor=floor,
            lookups=answers,
            data_lookups=data,
            newest=None if self.newest is None else EventMax(self.newest),
            samples=self.samples,
            size_bytes=1000,
        )
        wanted = wanted_lookups(facts, settings, NOW)
        answers |= {time_ms: LookUp(self.offset_at(time_ms)) for time_ms in wanted.times - answers.keys()}
        data |= {time_ms: LookUp(self.offset_at(time_ms)) for time_ms in wanted.data}
        return facts


ages = st.integers(0, 100 * HOUR) | st.integers(-3 * HOUR, 2 * HOUR)
stamps = st.lists(ages.map(lambda age: NOW - age), max_size=12)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    start = draw(st.integers(0, 50))
    times = draw(stamps)
    end = start + len(times)
    stable = draw(st.none() | st.integers(start, end))
    floor = draw(st.just(UNKNOWN) | st.integers(max(0, start - 3), end))
    written = sorted(draw(st.lists(ages, min_size=len(times), max_size=len(times))), reverse=True)
    watched = draw(st.lists(ages, max_size=4))
    remembered = draw(st.none() | ages)
    return Log(
        start,
        times,
        stable,
        floor,
        [NOW - age for age in written],
        [NOW - age for age in watched],
        None if remembered is None else NOW - remembered,
    )


durations = st.integers(0, 100 * HOUR)
settings = st.builds(
    Settings,
    consumed_after_ms=st.none() | durations,
    forced_age_ms=st.none() | durations,
    forced_age_guarded=st.booleans(),
    event_time_ms=st.none() | durations,
    min_wallclock_ms=st.none() | durations,
    allow_empty=st.booleans(),
    min_timestamp_ms=st.none() | ages.map(lambda age: NOW - age),
    unconsumed=st.sampled_from(["hold", "trim"]),
)

NOTE = Reason("lookup", "stopped")


def wanted_lookups(facts: PartitionFacts, settings: Settings, now_ms: int) -> Wanted:
    """Return the times whose ``offset_at`` the decision of one partition needs."""
    return TopicRules(facts.topic, settings, now_ms).wanted(facts)


def policy(text: str):
    return parse_policy(text, "kretain.yaml", "sha256:x")
