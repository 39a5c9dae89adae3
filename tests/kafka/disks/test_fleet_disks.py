"""Inventories of a fleet: each cluster's policy names its own (R5, R6)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters import EmbeddedKafka
from tests.support.says import says
from tests.support.volumes import scan_all
from tests.support.world import HOUR, MIB, World, now_ms, run_cli


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[EmbeddedKafka, EmbeddedKafka]]:
    with EmbeddedKafka(1) as one, EmbeddedKafka(1) as other:
        yield one, other


@pytest.fixture
def fleet(pair: tuple[EmbeddedKafka, EmbeddedKafka], tmp_path: Path) -> tuple[list[World], str]:
    """A topic of small segments in each of two clusters, an inventory and a policy of each, and a fleet file."""
    worlds = [World(one.bootstrap, tmp_path / "state") for one in pair]
    topic = worlds[0].topic("fleet-disks", segment_bytes=str(MIB))
    worlds[1].topic(name=topic, segment_bytes=str(MIB))
    entry = f"{{match: {topic}, retention.bytes: 2MiB, unconsumed: trim}}"
    lines = ["version: 1", "clusters:"]
    for number, (world, kafka) in enumerate(zip(worlds, pair, strict=True)):
        for size in (100_000, 200_000):
            world.produce_at(topic, [now_ms() - 5 * HOUR] * 10, value=partial(os.urandom, size), batch=1)
        scan_all(kafka, tmp_path / f"inventory-{number}")
        disks = f"version: 1\ndisks: {{inventory: inventory-{number}}}\n"
        (tmp_path / f"policy-{number}.yaml").write_text(f"{disks}topics: [{entry}]\n")
        lines.append(f"  - {{name: c{number}, bootstrap-server: '{world.bootstrap}', policy: policy-{number}.yaml}}")
    (tmp_path / "fleet.yaml").write_text("\n".join(lines) + "\n")
    return worlds, topic


def planned(folder: Path, *more: str, check: int = 0) -> dict[str, Any]:
    flags = ("--fleet", str(folder / "fleet.yaml"), "--state-dir", str(folder / "state"), "-o", "json")
    return {one["name"]: one for one in run_cli("plan", *flags, *more, check=check).json()["clusters"]}


def test_fleet_trim_uses_each_inventory_and_refuses_an_unreadable_one(
    fleet: tuple[list[World], str], tmp_path: Path
) -> None:
    """Bad input never trims anything, and costs only its cluster."""
    worlds, topic = fleet
    rows = {name: one["partitions"][0] for name, one in planned(tmp_path).items()}
    assert {name: row["action"] for name, row in rows.items()} == {"c0": "trim", "c1": "trim"}
    assert all("by the inventory" in str(row["reasons"]) for row in rows.values()), rows
    expected = rows["c0"]["trim_to"]
    (tmp_path / "inventory-1" / "2.parquet").write_bytes(b"broken")
    assert "2.parquet" in str(planned(tmp_path)["c1"]["notes"])
    flags = ("--fleet", str(tmp_path / "fleet.yaml"), "--state-dir", str(tmp_path / "state"), "--yes")
    says(run_cli("trim", *flags, check=5).err, "c1: ", "2.parquet")
    assert [one.ends(topic)[0] for one in worlds] == [expected, 0]
