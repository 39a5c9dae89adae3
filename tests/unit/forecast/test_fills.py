"""When disks are full: against growing every replica step by step."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from retention_cli.forecast.disks import Growing, full_in
from retention_cli.forecast.rates import ENDLESS, NOTHING, Span


def test_replica_grows_up_to_its_kept_size() -> None:
    one = Growing(100, Span.of(1.0), Span.of(150.0))
    assert full_in(50, [one]) == (50, 50)
    assert full_in(51, [one]) == (math.inf, math.inf)
    assert full_in(100, [one, Growing(0, Span.of(1.0), ENDLESS)]) == (50, 50)
    assert full_in(101, [one, Growing(0, Span.of(1.0), ENDLESS)]) == (51, 51)


def test_shrinking_replica_delays_only_the_latest_fill_time() -> None:
    shrinking = Growing(100, Span.of(1.0), Span.of(40.0))
    growing = Growing(0, Span.of(1.0), ENDLESS)
    assert full_in(10, [shrinking, growing]) == (10, 70)


def test_full_disk_is_full_now_and_an_idle_one_never_fills() -> None:
    assert full_in(0, []) == (0, math.inf) or full_in(0, []) == (0, 0)
    assert full_in(10, [Growing(5, NOTHING, ENDLESS)]) == (math.inf, math.inf)


REPLICA = st.builds(
    lambda size, rates, kept, endless: Growing(
        size, Span(*sorted(map(float, rates))), ENDLESS if endless else Span(*sorted(map(float, kept)))
    ),
    st.integers(0, 100),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.integers(0, 200), st.integers(0, 200)),
    st.booleans(),
)


@given(replicas=st.lists(REPLICA, max_size=12), room=st.integers(1, 800), where=st.floats(0, 1))
def test_disk_fills_within_the_forecast_at_any_growth(replicas: list[Growing], room: int, where: float) -> None:
    found = full_in(room, replicas)
    assert found.low <= found.high
    used = float(sum(one.size_bytes for one in replicas))
    most = used + room
    sizes = [float(one.size_bytes) for one in replicas]
    full = math.inf
    for now in range(1, 1000):
        for at, one in enumerate(replicas):
            rate = one.per_ms.low + where * (one.per_ms.high - one.per_ms.low)
            kept = one.kept_bytes
            end = kept.low if math.isinf(kept.low) else kept.low + where * (kept.high - kept.low)
            sizes[at] = min(sizes[at] + rate, max(sizes[at], end))
        if sum(sizes) >= most - 1e-6:
            full = now
            break
    assert found.low <= full + 1e-3
    if math.isfinite(found.high) and all(one.size_bytes <= one.kept_bytes.low for one in replicas):
        assert full <= found.high + 1
