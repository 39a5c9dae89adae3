"""The edges of R2, R3, G3, G4 and G8, one by one (docs/rules.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from retention_cli.core.model import EventMax, EventPrefix, LookUp, PartitionFacts, Reason, Sample, Tail, Unknown
from retention_cli.decide.decision import decide
from retention_cli.decide.guards.our_clock import compare_clocks
from retention_cli.decide.guards.wall_clock import written_by
from retention_cli.memory.event_scan import Block, EventScan
from retention_cli.memory.samples import thinned
from retention_cli.policy.settings import EventSource, Settings
from tests.support.facts import HOUR, NOW, Log, topic
from tests.support.lookups import wanted_lookups

OLD = NOW - 48 * HOUR
EVENT = Settings(event_time_ms=24 * HOUR, unconsumed="trim")
HEADER = replace(EVENT, event_source=EventSource("header", "et"), allow_ancient=True)


def codes(facts: PartitionFacts, settings: Settings) -> tuple[str, int | None, list[str]]:
    decision = decide(facts, settings, NOW)
    return decision.action, decision.trim_to, sorted({reason.code for reason in decision.reasons})


@pytest.mark.parametrize(
    ("ahead_ms", "expected"),
    [(HOUR, ("trim", 2, [])), (HOUR + 1, ("hold", None, ["G4"])), (10**15, ("hold", None, ["G4"]))],
)
def test_largest_event_time_may_be_ahead_only_within_the_tolerance(
    ahead_ms: int, expected: tuple[str, int | None, list[str]]
) -> None:
    facts = Log(0, [OLD, OLD, NOW - HOUR]).facts(EVENT)
    newest = EventMax(NOW + ahead_ms, 7)
    lookups = {newest.time_ms - 24 * HOUR: LookUp(2)}
    assert codes(facts._replace(newest=newest, data_lookups=lookups), EVENT) == expected


def test_future_timestamp_names_its_record_and_the_remedy() -> None:
    facts = Log(0, [OLD, NOW]).facts(EVENT)._replace(newest=EventMax(NOW + 9 * HOUR, 7))
    facts = facts._replace(data_lookups={NOW - 15 * HOUR: LookUp(1)})
    (reason,) = decide(facts, EVENT, NOW).reasons
    assert "the record at offset 7" in reason.text
    assert "retention.eventtime.ignore.future: true" in reason.text


def test_append_times_are_event_times_only_if_the_policy_allows_it() -> None:
    about = topic(timestamp_type="LogAppendTime")
    log = Log(0, [OLD, OLD, NOW])
    assert codes(log.facts(EVENT, about), EVENT) == ("hold", None, ["R2"])
    by_word = replace(EVENT, event_source=EventSource("timestamp"))
    assert codes(log.facts(by_word, about), by_word) == ("trim", 2, [])
    prefix = log.facts(HEADER, about)._replace(event_prefix=EventPrefix(1))
    assert codes(prefix, HEADER) == ("trim", 1, [])


def test_unknown_timestamp_type_holds() -> None:
    about = topic(timestamp_type=Unknown.because("topic-settings", "not read"))
    assert codes(Log(0, [OLD, NOW]).facts(EVENT, about), EVENT) == ("hold", None, ["topic-settings"])


def test_partition_without_data_records_needs_no_look_up() -> None:
    facts = Log(0, [OLD, OLD]).facts(EVENT)._replace(newest=None)
    assert codes(facts, EVENT) == ("keep", None, ["R2"])


def test_incomplete_largest_time_is_called_a_lower_bound() -> None:
    facts = Log(0, [OLD, OLD, NOW]).facts(EVENT)
    at_least = facts._replace(newest=EventMax(NOW, 2, exact=False))
    decision = decide(at_least, EVENT, NOW)
    assert decision.trim_to == 2
    assert "at least" in decision.reasons[0].text


@pytest.mark.parametrize(("ahead_ms", "action"), [(0, "trim"), (1, "hold")])
def test_minimum_timestamp_may_be_now_but_not_in_the_future(ahead_ms: int, action: str) -> None:
    settings = Settings(min_timestamp_ms=NOW + ahead_ms, unconsumed="trim")
    decision = decide(Log(0, [OLD, OLD]).facts(settings), settings, NOW)
    assert decision.action == action
    meant = replace(settings, allow_empty=True)
    assert decide(Log(0, [OLD, OLD]).facts(meant), meant, NOW).trim_to == 2


@pytest.mark.parametrize("settings", [EVENT, Settings(forced_age_ms=24 * HOUR), Settings(min_timestamp_ms=1)])
def test_times_before_1970_are_never_looked_up(settings: Settings) -> None:
    """To a broker −1 is the end of the log: a cutoff so early is older than every record."""
    early = replace(
        settings,
        event_time_ms=None if settings.event_time_ms is None else NOW + 1,
        forced_age_ms=None if settings.forced_age_ms is None else NOW + 1,
        allow_ancient=True,
    )
    facts = Log(3, [5, 6]).facts(early)
    facts = facts._replace(newest=EventMax(NOW))
    wanted = wanted_lookups(facts, early, NOW)
    assert all(time_ms > 0 for time_ms in wanted.times | wanted.data)
    assert decide(facts, early, NOW).trim_to is None


def test_future_record_at_a_prefix_end_is_named_by_each_rule_by_age() -> None:
    settings = Settings(forced_age_ms=24 * HOUR)
    facts = Log(0, [NOW + 9 * HOUR, OLD]).facts(settings)
    blocked = facts._replace(lookups={**facts.lookups, NOW - 24 * HOUR: LookUp(0, None, NOW + 9 * HOUR)})
    assert codes(blocked, settings) == ("keep", None, ["G4"])


def test_wrong_clock_stops_rules_by_time() -> None:
    settings = Settings(forced_age_ms=24 * HOUR)
    off = Unknown((Reason("G8", "5 min apart"),))
    assert codes(Log(0, [OLD]).facts(settings)._replace(clock=off), settings) == ("hold", None, ["G8"])
    assert compare_clocks(NOW, NOW + 60_000, NOW) is None
    assert compare_clocks(NOW, NOW + 60_001, NOW) is not None
    assert compare_clocks(NOW, NOW - 60_001, NOW) is not None


def test_size_rule_ignores_the_clock_but_its_wall_clock_guard_does_not() -> None:
    """R5 under G3 goes by our clock, too (G8); alone it does not."""
    off = Unknown((Reason("G8", "5 min apart"),))
    size = Settings(max_bytes=100, unconsumed="trim")
    guarded = replace(size, min_wallclock_ms=HOUR)
    log = Log(0, [OLD, OLD], written=[OLD, OLD], watched=[OLD])
    for settings, expected in ((size, ("trim", 1)), (guarded, ("hold", None))):
        facts = log.facts(settings)._replace(clock=off, tails={"retention.bytes": Tail(1, exact=True)})
        decision = decide(facts, settings, NOW)
        assert (decision.action, decision.trim_to) == expected
        assert decide(facts._replace(clock=None), settings, NOW).trim_to == 1
    assert compare_clocks(NOW, NOW + 90_000, NOW + 100_000) is None, "it was stamped between our two looks"


def test_wall_clock_guard_uses_the_newest_sufficiently_old_sample() -> None:
    samples = [Sample(NOW - 5 * HOUR, 10), Sample(NOW - 3 * HOUR, 20), Sample(NOW - HOUR, 30), Sample(NOW, 40)]
    assert written_by(samples, NOW - 3 * HOUR) == 20
    assert written_by(samples, NOW - 3 * HOUR - 1) == 10
    assert written_by(samples, NOW - 6 * HOUR) is None


def test_thinned_samples_never_claim_more_across_a_fall() -> None:
    """The sample after the fall may be dropped: what it took back must not come back with it."""
    samples = [Sample(n * HOUR, 1_000 + n) for n in range(100)]
    samples += [Sample(100 * HOUR, 10)]
    samples += [Sample((101 + n) * HOUR, 10 + 20 * (n + 1)) for n in range(100)]
    for hours in range(0, 200, 7):
        assert (written_by(thinned(samples), hours * HOUR) or 0) <= (written_by(samples, hours * HOUR) or 0), hours


def test_merged_blocks_keep_their_first_unreadable_record() -> None:
    scan = EventScan("header:et", 0, 0, block_records=1)
    for offset in range(300):
        scan.add(offset, None if offset in (5, 6, 200) else 1)
    assert min(one.unreadable for one in scan.blocks if one.unreadable is not None) == 5
    there = scan.prefix(0, 10, skip=False)
    assert isinstance(there, Block)
    assert there.start <= 5 < there.end
    assert scan.prefix(0, 10, skip=True) == 300
