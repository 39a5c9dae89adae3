"""kretain beside kfake, another implementation of Kafka's brokers, in Go: it answers what it must, and not all that Apache's do."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.facts import known
from tests.support.world import HOUR, World, codes, consumed, now_ms

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = tmp_path_factory.mktemp("kfake") / "kfake"
    assert shutil.which("go"), "go is needed for these tests"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=Path(__file__).parent / "brokers", check=True)
    with subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield known(process.stdout).readline().strip()
        known(process.stdin).close()


@pytest.fixture
def fake(bootstrap: str, tmp_path: Path) -> World:
    return World(bootstrap, tmp_path / "state")


def hidden(topic: str, require: str) -> str:
    groups = f"\ngroups: {{require: [{require}], offsets.topic: hidden}}\n"
    return consumed(topic).replace("version: 1\n", f"version: 1{groups}")


def test_trim_deletes_what_every_group_has_read_and_nothing_else(fake: World) -> None:
    topic = fake.filled([30 * HOUR] * 10, {"a": {0: 7, 1: 3}, "b": {0: 9}}, each=2)
    assert codes(fake.decide(consumed(topic), topic)) == {"F9"}, (
        "it has no offsets topic, so coordinators may be missing"
    )
    policy = hidden(topic, f"{topic}-a, {topic}-b")
    plan = fake.plan(policy)
    assert [(one.action, one.trim_to, codes(one)) for one in plan.decisions] == [
        ("trim", 7, set()),
        ("hold", None, {"F2", "F4"}),
    ]
    assert [(row.outcome, row.log_start) for row in fake.trim(plan, policy).rows] == [("trimmed", 7), ("held", 0)]
    assert [len(fake.records(topic, number)) for number in (0, 1)] == [3, 10]


@pytest.mark.parametrize(
    ("rule", "trim_to"),
    [
        ("retention.ms: 40h", 2),
        ("retention.max.eventtime.ms: 24h", 2),
        (
            f"log.retention.min.timestamp: '{datetime.fromtimestamp(now_ms() / 1000 - 200_000, UTC):%Y-%m-%dT%H:%M:%SZ}'",
            1,
        ),
    ],
    ids=["R4", "R2", "R3"],
)
def test_times_are_looked_up_as_on_apaches_brokers(fake: World, rule: str, trim_to: int) -> None:
    topic = fake.filled([72 * HOUR, 48 * HOUR, 2 * HOUR, HOUR])
    decision = fake.decide(f"version: 1\ntopics: [{{match: {topic}, unconsumed: trim, {rule}}}]\n", topic)
    assert (decision.action, decision.trim_to) == ("trim", trim_to)
