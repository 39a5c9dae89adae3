"""``kretain_group_seconds_to_loss`` of a real watch, held against when the records really went (docs/metrics.md)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.forecasting import A_SECOND, written_to
from tests.support.watching import PLAIN, Watcher, watching
from tests.support.world import World, wait_until

MIB = 1 << 20
QUICKLY = f"import retention_cli.watch.one_pass as one_pass\nassert one_pass.HOUR_MS\none_pass.HOUR_MS = 3000\n{PLAIN}"
"""Rates are measured over three seconds, not over an hour."""
SLACK_S = 3.0
"""A pass, a look, and what a busy machine is late by."""


def told(world: World, watcher: Watcher, group: str, topic: str, offset: int) -> list[tuple[float, float | None]]:
    """Return what was told until the record at an offset was gone: how long that was before, and the seconds told."""
    found: list[tuple[float, float | None]] = []

    def gone() -> bool:
        left = watcher.metrics().get(("kretain_group_seconds_to_loss", f"group:{group}", topic))
        found.append((time.monotonic(), left))
        return world.ends(topic)[0] > offset

    wait_until(gone, "the loss that was foretold", 90)
    lost = time.monotonic()
    return [(lost - at, left) for at, left in found]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "by", [pytest.param("R6", marks=pytest.mark.thorough), pytest.param("the brokers' size", marks=pytest.mark.long)]
)
def test_seconds_to_loss_is_between_half_and_all_of_the_real_time(here: World, by: str, tmp_path: Path) -> None:
    """A group that has stopped; its disk fills, or its topic has a ``retention.bytes``."""
    topic = here.topic("losing", segment_bytes=str(MIB))
    unconsumed = "trim"
    if by != "R6":
        here.configure(topic, {"retention.bytes": str(4 * MIB)})
        unconsumed = "hold"
    policy = tmp_path / "policy.yaml"
    ceiling = ", log.retention.disk.usage.percent: 50" if by == "R6" else ""
    policy.write_text(
        f"version: 1\ndisks: {{capacity: {12 * MIB}{ceiling}}}\ntopics:\n  - match: {topic}\n"
        f"    unconsumed: {unconsumed}\n    retention.commitoffset.enable: true\n    retention.commitoffset.ms: 1h\n"
    )
    with (
        written_to(here, topic),
        watching(here, policy, "--trim", "--interval", "3s", code=QUICKLY) as watcher,
    ):
        wait_until(lambda: here.ends(topic)[1] > 3 * A_SECOND, "some records")
        offset = here.ends(topic)[1]
        here.commit(f"{topic}-group", topic, offset)
        found = told(here, watcher, f"{topic}-group", topic, offset)
        wait_until(
            lambda: watcher.metrics().get(("kretain_group_seconds_to_loss", f"group:{topic}-group", topic)) == 0,
            "that it has lost some",
        )
        watcher.end()
    here.delete(topic)
    numbers = [(truly, left) for truly, left in found if left is not None]
    early = [(truly, left) for truly, left in numbers if truly > 6]
    assert early, found
    assert all(left <= truly + SLACK_S for truly, left in numbers), numbers
    assert sum(left >= truly / 2 for truly, left in early) > len(early) / 2, early
