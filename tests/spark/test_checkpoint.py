"""A real streaming query, stopped in the middle of a batch, loses no record to a trim (F7)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kretain.embedded import jars
from tests.support.world import HOUR, World, written

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

CONNECTOR = "4.2.0"
"""The newest that is published, not always with PySpark's own version; checkpoints are written by PySpark's Spark."""
_NEEDED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")

Place = tuple[str, int, int]


class Query:
    """The query of ``streaming_query.py``, run again and again from one checkpoint, in one process of Spark's."""

    def __init__(self, world: World, topics: list[str], folder: Path) -> None:
        lib = jars.resolve("spark-sql-kafka-0-10_2.13", CONNECTOR, print, group="org.apache.spark")
        needed = ",".join(str(jar) for jar in sorted(lib.iterdir()) if jar.name.startswith(_NEEDED))
        given = {"bootstrap": world.bootstrap, "topics": topics, "folder": str(folder), "jars": needed}
        script = Path(__file__).parents[1] / "support" / "spark" / "streaming_query.py"
        command = [sys.executable, str(script), json.dumps(given)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._folder = folder
        (folder / "in").mkdir()

    def run(self, *, fails_at: int = -1) -> None:
        """Run it to its end, or to the batch that its sink refuses."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(fails_at, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == ("done\n" if fails_at < 0 else "failed\n")

    def written(self) -> Counter[Place]:
        lines = (line for file in (self._folder / "out").glob("*.json") for line in file.read_text().splitlines())
        return Counter((row["topic"], row["partition"], row["offset"]) for row in map(json.loads, lines))


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that end with the test."""
    found: list[subprocess.Popen[str]] = []
    yield found
    for one in found:
        one.communicate(timeout=60)


def test_query_that_failed_in_a_batch_replays_it_after_a_trim(
    world: World, tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    """Before its first batch is done nothing goes; then what the last committed batch holds, and no more."""
    orders, payments = world.topic(partitions=2), world.topic()
    everything: set[Place] = set()
    for topic, partition in ((orders, 0), (orders, 1), (payments, 0)):
        world.produce(topic, [5 * HOUR] * 10, partition)
        everything |= {(topic, partition, offset) for offset in range(10)}
    policy = written(
        tmp_path / "policy.yaml",
        f"version: 1\ntopics: [{{match: ['{orders}', '{payments}'], retention.commitoffset.enable: true, "
        "retention.commitoffset.ms: 0}]\nfloors:\n  - {checkpoint: checkpoint, name: enrich}\n",
    )

    def trim() -> dict[tuple[str, int], int]:
        """Trim, and return each log start."""
        world.cli("trim", "-p", str(policy), "--yes", check=0)
        return {place[:2]: world.ends(*place[:2])[0] for place in everything}

    def planned() -> set[tuple[str, str | None]]:
        rows = world.cli("plan", "-p", str(policy), "-o", "json", check=0).json()["partitions"]
        return {(row["action"], row["min_commit_by"]) for row in rows}

    assert planned() == {("hold", None)}  # there is no checkpoint yet
    query = Query(world, [orders, payments], tmp_path)
    started.append(query.process)
    query.run(fails_at=0)
    assert set(trim().values()) == {0}
    assert planned() == {("keep", "checkpoint:enrich")}
    query.run(fails_at=1)
    done = query.written()
    assert 10 <= len(done) < len(everything)
    starts = trim()
    assert starts == {place: sum(one[:2] == place for one in done) for place in starts}
    assert max(starts.values()) > 0
    query.run()
    assert query.written() == Counter(everything)
    assert set(trim().values()) == {10}
