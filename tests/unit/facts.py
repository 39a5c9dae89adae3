"""Partitions made of plain records, and the facts that a perfect reading of them would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from retention_cli.decide import wanted_lookups
from retention_cli.model import Floor, LookUp, Maybe, PartitionFacts, Reason, TopicFacts, Unknown
from retention_cli.policy.settings import Settings

NOW = 1_800_000_000_000
HOUR = 3_600_000
UNKNOWN = Unknown.because("F4", "no group")


def topic(name: str = "orders", **more: object) -> TopicFacts:
    values: dict[str, object] = {
        "topic_id": "id-1", "internal": False, "cleanup_policy": frozenset({"delete"}), "retention_ms": -1,
    }  # fmt: skip
    return TopicFacts(name, **(values | more))  # type: ignore[arg-type]


@dataclass
class Log:
    """A partition: the log start offset, and the timestamps of the records from there on."""

    start: int
    stamps: Sequence[int]
    stable: int | None = None
    floor: Maybe[int] = field(default_factory=lambda: UNKNOWN)

    @property
    def end(self) -> int:
        return self.start + len(self.stamps)

    def offset_at(self, time_ms: int) -> int:
        """The definition: the first offset with a timestamp of at least ``time_ms``, else H."""
        return next((self.start + n for n, stamp in enumerate(self.stamps) if stamp >= time_ms), self.end)

    def facts(self, settings: Settings, about: TopicFacts | None = None, lookups: Mapping[int, Maybe[LookUp]] | None = None) -> PartitionFacts:
        floor: Maybe[Floor] = self.floor if isinstance(self.floor, Unknown) else Floor(self.floor, "group:a")
        answers: dict[int, Maybe[LookUp]] = dict(lookups or {})
        facts = PartitionFacts(
            topic=about or topic(), partition=0, log_start=self.start, high_watermark=self.end,
            last_stable_offset=self.end if self.stable is None else self.stable, floor=floor, lookups=answers,
            size_bytes=1000,
        )  # fmt: skip
        for time_ms in wanted_lookups(facts, settings, NOW) - answers.keys():
            answers[time_ms] = LookUp(self.offset_at(time_ms))
        return facts


ages = st.integers(0, 100 * HOUR)
stamps = st.lists(ages.map(lambda age: NOW - age), max_size=12)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    start = draw(st.integers(0, 50))
    times = draw(stamps)
    end = start + len(times)
    stable = draw(st.none() | st.integers(start, end))
    floor = draw(st.just(UNKNOWN) | st.integers(max(0, start - 3), end))
    return Log(start, times, stable, floor)


settings = st.builds(
    Settings,
    consumed_after_ms=st.none() | ages,
    forced_age_ms=st.none() | ages,
    forced_age_guarded=st.booleans(),
    unconsumed=st.sampled_from(["hold", "trim"]),
)

NOTE = Reason("lookup", "stopped")
