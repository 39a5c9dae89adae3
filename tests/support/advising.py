"""What the tests of advice ask, and how they carry it out."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

from kretain.render.advise import row
from retention_cli.advise.advice import advise as judge, kafka_configs
from retention_cli.advise.facts import Demand
from retention_cli.advise.reading import read_topics
from tests.support.clusters import kafka_tool
from tests.support.world import World, now_ms, reader_for

ANY_STAMP = str((1 << 63) - 1)

Shop = tuple[World, dict[str, str]]
"""A cluster, and its topics by what is the matter with them."""


def advice(world: World, *arguments: str) -> dict[str, Any]:
    """Return one topic's advice as JSON."""
    topics = world.cli("advise", *arguments, "-o", "json", check=0).json()["topics"]
    assert len(topics) == 1
    return topics[0]


def judged(world: World, topic: str) -> dict[str, Any]:
    """Return the same without starting a process."""
    with reader_for(world.bootstrap) as reader:
        reading = read_topics(reader, [topic], None, now_ms)
    found = judge(reading.topics[0], Demand(), reading.now_ms)
    return row(found, kafka_configs(topic, found.changes, world.bootstrap, None) if found.changes else None)


def codes(row: dict[str, Any]) -> set[str]:
    return {danger["code"] for danger in row["dangers"]}


def carry_out(line: str) -> None:
    """Run an advised line with Kafka's own class, as kafka-configs.sh does."""
    script, *arguments = shlex.split(line)
    assert script == "kafka-configs.sh"
    done = subprocess.run(
        kafka_tool("ConfigCommand", *arguments), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "Completed updating config" in done.stdout
