"""Who blocks what, since when, and with how much unread: groups of each kind, and how long they were watched (F10)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer  # type: ignore[attr-defined]

from retention_cli.core.model import Decision
from tests.support.leaders import configure_group, from_the_start
from tests.support.says import held, json_of, pick, says
from tests.support.trims import only
from tests.support.world import DAY, HOUR, OLD, World, codes, consumed, now_ms, reader_for, wait_until, written


def test_offsets_unread_counts_for_every_kind_of_consumer(world: World, tmp_path: Path) -> None:
    read = {"fast": {0: 10, 1: 9}, "leaves": {0: 2, 1: 10}, "lacks": {0: 7}}
    topic = world.filled([5 * HOUR] * 10, read, 2, stem="unread")
    rows = [{"topic": topic, "partition": 0, "offset": 5}, {"topic": topic, "partition": 1, "offset": 0}]
    flink = written(tmp_path / "flink.json", json.dumps({"at": now_ms(), "positions": rows}))
    broken = f"{{command: ['false'], name: broken, topics: ['{topic}']}}"
    sources = f"\nfloors: [{{file: {flink}, name: flink}}, {broken}]\n"
    policy = str(written(tmp_path / "policy.yaml", consumed(topic) + sources))
    asked = ("offsets", "-p", policy, "--unread")

    world.cli("plan", "-p", policy, check=0)
    world.delete_group(f"{topic}-leaves")
    world.produce(topic, 2, 1)
    world.commit(f"{topic}-new", topic, {0: 10, 1: 10})
    said = {row["group"].removeprefix(f"{topic}-"): row for row in json_of(world, *asked)["topics"]}
    assert {name: pick(row, "records", "partitions", "unknown", "remembered") for name, row in said.items()} == {
        "fast": (0 + 3, 2, 0, False),
        "leaves": (8 + 2, 2, 0, True),
        "lacks": (None, 2, 1, False),
        "new": (2, 2, 0, False),
        "file:flink": (5 + 12, 2, 0, False),
        "command:broken": (None, 0, 1, False),
    }
    [seen] = {row["oldest_sample"] for row in json_of(world, "ledger", "show", topic)["partitions"]}
    since = {name: row["unread_since"] for name, row in said.items() if row["records"]}
    assert since == {**dict.fromkeys(("fast", "leaves", "file:flink"), seen), "new": None}, "no plan has seen those two"

    each = json_of(world, *asked, "--groups", "--group", "file:*")["partitions"]
    with reader_for(world.bootstrap) as reader:
        sizes, _ = reader.sizes_soon(reader.metadata({topic}).partitions_of([topic])).result()
    by_partition = {tp.partition: size for tp, size in sizes.items()}
    assert [pick(row, "partition", "committed", "records", "bytes") for row in each] == [
        (0, 5, 5, by_partition[0] * 5 // 10),
        (1, 0, 12, by_partition[1]),
    ]
    table = world.cli(*asked, check=0).out
    says(table, f"{topic}-leaves", "Some consumers no longer exist", "—: unknown;")


REJECTED = 3
ROUNDS = 30


def reject_some(world: World, group: str, topic: str, letters: str) -> None:
    """Reject the first records, and accept others until the group's start is written."""
    settings = {"bootstrap.servers": world.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    share: Any = ShareConsumer(settings)
    share.subscribe([topic])
    seen: list[int] = []

    def written() -> bool:  # what is acknowledged is written with the next ones
        world.produce(topic, OLD[:1])
        for message in share.poll(0.2) or ():
            seen.append(message.offset())
            share.acknowledge(message, AcknowledgeType.REJECT if seen[-1] < REJECTED else AcknowledgeType.ACCEPT)
        share.commit_sync()
        return world.ends(letters)[1] >= REJECTED and len(seen) >= ROUNDS

    wait_until(written, "the dead letters")
    share.close()


def test_dead_letters_that_point_to_records_hold_them(world: World) -> None:
    topic = world.filled(OLD, stem="share")
    letters = world.topic(name=f"dlq.{topic}", errors_deadletterqueue_group_enable="true")
    group = f"{topic}-share"
    from_the_start(world, group)
    configure_group(world, group, {"errors.deadletterqueue.topic.name": letters})
    reject_some(world, group, topic, letters)
    assert world.ends(letters)[1] == REJECTED, "the broker wrote them"
    world.commit(f"{topic}-done", topic, world.ends(topic)[1])

    decision = world.decide(consumed(topic), topic)
    assert f"its dead letters in {letters} only point to records here" in held(decision, "F3")
    assert len(decision.reasons) == 1
    assert "internal error" not in world.cli("groups", "-o", "json", "-p", "/dev/null", check=None).err

    configure_group(world, group, {"errors.deadletterqueue.copy.record.enable": "true"})
    assert pick(world.decide(consumed(topic), topic), "action", "min_commit_by") == ("trim", f"share:{group}")
    ignored = consumed(topic).replace("version: 1", f"version: 1\ngroups: {{ignore: [{group}]}}")
    configure_group(world, group, {"errors.deadletterqueue.copy.record.enable": "false"})
    assert world.decide(ignored, topic, remember=False).action == "trim"
    world.delete_group(group)  # tests that share these brokers look at every group


def watching(topic: str, first: str = "3d", **more: str) -> str:
    return f"groups:\n  watch.first: {first}\n{consumed(topic, **more)}"


@pytest.mark.parametrize("days", [(0, 1, 2, 3), (0, 0.5, 3.2, 4, 5, 6.3)], ids=["daily", "a pause"])
def test_r1_holds_until_groups_were_watched_without_a_pause(world: World, days: tuple[float, ...]) -> None:
    topic, began = world.filled(OLD, {"reader": 7}), now_ms()
    *before, last = [world.decide(watching(topic), topic, at_ms=began + int(day * DAY)) for day in days]
    assert [(one.action, one.trim_to, codes(one)) for one in before] == [("hold", None, {"F10"})] * (len(days) - 1)
    assert pick(last, "action", "trim_to", "rule") == ("trim", 7, "consumed")


def test_new_state_directory_holds_r1_again_also_in_the_recheck_of_a_saved_plan(world: World) -> None:
    topic, began = world.filled(OLD, {"reader": 7}), now_ms()
    policy = watching(topic, "1d")
    world.decide(policy, topic, at_ms=began - DAY)
    plan = world.plan(policy)
    assert [one.action for one in plan.decisions] == ["trim"]
    shutil.rmtree(world.state_dir)
    row = only(world.trim(plan, policy))
    assert (row.outcome, {one.code for one in row.reasons}, world.ends(topic)[0]) == ("held", {"F10"}, 0)


def test_other_rules_go_on_while_r1_waits(world: World) -> None:
    topic = world.filled(OLD, {"reader": 7})
    found: Decision = world.decide(watching(topic, retention__ms="24h"), topic)
    assert (found.action, found.rule, codes(found)) == ("trim", "forced-age", {"F10"})


def test_plan_says_until_when_r1_waits_and_nothing_where_there_is_nothing_to_trim(world: World, tmp_path: Path) -> None:
    topic = world.filled(OLD, {"reader": 0})
    asked = ("plan", "-p", str(written(tmp_path / "policy.yaml", watching(topic))))
    assert "F10" not in world.cli(*asked, check=0).out
    world.commit(f"{topic}-reader", topic, 5)
    said = " ".join(world.cli(*asked, check=0).out.split())
    assert re.search(r"R1 holds until 20.*\(groups\.watch\.first: 3 d\)", said)
