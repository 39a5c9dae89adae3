"""Live settings: from a person, an application or the console producer to a decision (R3, docs/live-settings.md)."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retention_cli.brokers.writer import ClusterWriter
from retention_cli.policy.live import POLICY_TOPIC, LiveEditError
from retention_cli.policy.load import parse_policy
from retention_cli.policy.model import merged
from retention_cli.state import own_topics
from tests.support.clusters import EmbeddedKafka, kafka_tool
from tests.support.ledger_stores import make_kretain_topics, run
from tests.support.world import DAY, HOUR, Cli, World, now_ms, reader_for, written

DOC = (Path(__file__).parents[3] / "docs" / "live-settings.md").read_text(encoding="utf-8")
OLD = [72 * HOUR, 48 * HOUR, 2 * HOUR]


@pytest.fixture(scope="module", autouse=True)
def _kretain_topics(kafka: EmbeddedKafka) -> None:
    make_kretain_topics(kafka.bootstrap)


@pytest.fixture
def writer(kafka: EmbeddedKafka) -> Iterator[ClusterWriter]:
    with reader_for(kafka.bootstrap) as reader, ClusterWriter(reader.settings, {POLICY_TOPIC}, 30) as made:
        yield made


def marked(topic: str, *more: str) -> str:
    lines = ["log.retention.min.timestamp: cluster", "unconsumed: trim", *more]
    return "\n".join(["version: 1", "topics:", f"  - match: {topic}", *(f"    {line}" for line in lines)])


@pytest.fixture
def journal(world: World, tmp_path: Path) -> tuple[World, str, Path]:
    """A topic whose minimum timestamp lives in the cluster, and its policy file."""
    topic = world.filled(OLD, stem="journal")
    return world, topic, written(tmp_path / "policy.yaml", marked(topic))


def trim_to(world: World, policy: Path, topic: str) -> int | None:
    return world.decide(policy.read_text(), topic).trim_to


Journal = tuple[World, str, Path]


def test_set_and_unset_move_the_minimum_timestamp(journal: Journal) -> None:
    world, topic, policy = journal

    def move(to_ms: int) -> Cli:
        return run(world, "policy", "set", topic, f"log.retention.min.timestamp={to_ms}", "-p", str(policy), check=0)

    assert trim_to(world, policy, topic) is None
    at = now_ms()
    pair = f"log.retention.min.timestamp={at - DAY}"
    rehearsed = run(world, "policy", "set", topic, pair, "--dry-run", "-p", str(policy), check=0)
    assert rehearsed.out == f"{topic}: {pair.replace('=', ' = ')} (dry run: nothing was written).\n"
    assert trim_to(world, policy, topic) is None, "nothing was written"
    said = move(at - DAY)
    assert re.fullmatch(
        rf"{topic}: log\.retention\.min\.timestamp = {at - DAY} \({POLICY_TOPIC}-0 offset [\d,]+\)\.\n", said.out
    )
    assert (said.err, trim_to(world, policy, topic)) == ("", 2)
    move(at - 60 * HOUR)
    assert trim_to(world, policy, topic) == 1
    ahead = move(at + 10 * DAY)
    assert "is in the future: until then it holds, unless the policy file says allow.empty: true" in ahead.err
    assert world.decide(policy.read_text(), topic).action == "hold"
    policy.write_text(marked(topic, "allow.empty: true"))
    assert (move(at + 10 * DAY).err, trim_to(world, policy, topic)) == ("", 3)
    run(world, "policy", "unset", topic, "-p", str(policy), check=0)
    assert world.decide(policy.read_text(), topic).action == "keep"


def test_set_without_a_policy_file_is_a_usage_error(journal: Journal) -> None:
    world, topic, _ = journal
    assert "no policy file" in run(world, "policy", "set", topic, "retention.ms=7d", check=2).err
    assert "is not KEY=VALUE" in run(world, "policy", "set", topic, "retention.ms", check=2).err


def test_garbage_as_the_last_message_holds_until_it_is_replaced(journal: Journal, writer: ClusterWriter) -> None:
    """What stood before must not be in force until a log cleaner runs, and hold then (docs/live-settings.md)."""
    world, topic, policy = journal
    run(world, "policy", "set", topic, f"log.retention.min.timestamp={now_ms() - DAY}", "-p", str(policy), check=0)
    assert trim_to(world, policy, topic) == 2
    bad = writer.append(POLICY_TOPIC, topic.encode(), b"nonsense")
    found = world.decide(policy.read_text(), topic)
    assert (found.action, [reason.code for reason in found.reasons]) == ("hold", ["policy-topic"])
    assert f"{POLICY_TOPIC}-0 offset {bad.offset:,}, for topic {topic}: is not JSON" in found.reasons[0].text
    assert "so the topic is held" in run(world, "policy", "check", "-p", str(policy), check=1).err
    shown = run(world, "policy", "show", topic, "-p", str(policy), check=0).out
    assert re.search(r"log\.retention\.min\.timestamp\s+cluster \(held\)", shown)
    set_right = run(world, "policy", "set", topic, "log.retention.min.timestamp=0", "-p", str(policy), check=0)
    assert f"kretain: replaced: {POLICY_TOPIC}-0 offset {bad.offset:,}, for topic {topic}: is not" in set_right.err
    assert run(world, "policy", "check", "-p", str(policy), check=0).err.count(topic) == 0
    assert world.decide(policy.read_text(), topic).action == "keep"


def test_concurrent_sets_of_different_keys_are_merged(journal: Journal, writer: ClusterWriter) -> None:
    """Two people set different keys of one topic at the same time: both hold."""
    world, topic, _ = journal
    policy = parse_policy(marked(topic, "retention.ms: cluster"), "policy.yaml", "sha256:test")
    turns: list[dict[str, Any]] = []

    def edit(before: dict[str, Any]) -> dict[str, Any]:
        if not turns:
            writer.append(POLICY_TOPIC, topic.encode(), b'{"retention.ms": "7d"}')
        turns.append(before)
        return merged(before, {"log.retention.min.timestamp": 5})

    with reader_for(world.bootstrap) as reader:
        done = own_topics.change(reader, writer, policy, topic, edit)
        assert (done.values, len(turns)) == ({"retention.ms": "7d", "log.retention.min.timestamp": 5}, 2)

        def always(before: dict[str, Any]) -> dict[str, Any]:
            writer.append(POLICY_TOPIC, topic.encode(), b'{"retention.ms": "7d"}')
            return before

        with pytest.raises(LiveEditError, match="another client keeps writing settings of topic"):
            own_topics.change(reader, writer, policy, topic, always)


# -- applications: what the page shows --------------------------------------------------------


def example(language: str, word: str) -> str:
    return next(text for text in re.findall(rf"```{language}\n(.*?)```", DOC, re.DOTALL) if word in text)


def test_documented_python_example_moves_the_minimum(journal: Journal) -> None:
    world, topic, policy = journal
    names: dict[str, Any] = {}
    exec(compile(example("python", "def move_minimum"), "live-settings.md", "exec"), names)  # noqa: S102
    names["move_minimum"](world.bootstrap, topic, now_ms() - DAY)
    assert trim_to(world, policy, topic) == 2


@pytest.mark.long
def test_documented_console_producer_moves_the_minimum(journal: Journal) -> None:
    """Kafka's own class, with the page's own line for it."""
    world, topic, policy = journal
    line = example("console", "kafka-console-producer.sh").removeprefix("$ ").replace("\\\n", " ")
    printed, _, command = line.partition("|")
    script, *words = shlex.split(command)
    assert script == "kafka-console-producer.sh"
    text = shlex.split(printed)[1].replace("\\t", "\t").replace("\\n", "\n")
    text = text.replace("journal", topic).replace("1793491200000", str(now_ms() - DAY))
    done = subprocess.run(
        kafka_tool("ConsoleProducer", *(world.bootstrap if word == "broker-1:9092" else word for word in words)),
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert trim_to(world, policy, topic) == 2
