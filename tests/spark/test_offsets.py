"""``kretain offsets --spark`` prints what this process finds by itself, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kretain.options.common import Output
from kretain.render import offsets as render
from retention_cli.engines.spark import positions as spark
from retention_cli.engines.spark.prepare import Target
from retention_cli.memory.stores import Memories
from retention_cli.policy.selection import NothingMatchesError
from retention_cli.reports import offsets as local
from retention_cli.reports.unread import Rows, read_unread
from tests.kafka.world import HOUR, World, consumed, now_ms, reader_for
from tests.spark.engines import Engines, past_day


@pytest.fixture(scope="module")
def topics(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Groups that lag, that stand below S and beyond H, that lack commits; a topic without any, and an empty one."""
    world = World(kafka.bootstrap, tmp_path_factory.mktemp("offsets") / "state")
    lags, lacks, alone, lost, leftover, compact = (world.topic(f"o{n}", partitions=2) for n in range(6))
    for topic in (lags, lacks, alone, lost, leftover, compact):
        for partition in range(2):
            world.produce(topic, [5 * HOUR] * 10, partition)
    empty = world.topic("o7", partitions=2)
    world.commit(f"{lags}-a", lags, {0: 3, 1: 10})
    world.commit(f"{lags}-b", lags, {0: 3, 1: 7})
    world.commit(f"{lags}-stray", lacks, 5)
    world.commit(f"{lags}-late", lost, {0: 1, 1: 8})
    world.delete_records(lost, 4)
    world.commit(f"{lags}-ahead", leftover, {0: 15, 1: 10})
    world.commit(f"{lags}-b", compact, {0: 2, 1: 9})
    return [lags, lacks, alone, lost, leftover, compact, empty]


@pytest.fixture
def engines(local_spark: Any, world: World, tmp_path: Path) -> Engines:
    return Engines(local_spark, world, tmp_path)


ALL = ((Output.table, False), (Output.table, True), (Output.json, True), (Output.csv, True))
ROWS = ((Output.json, True),)


def told(found: local.Positions, ways: Any, capsys: Any) -> list[str]:
    """What the command prints of it: floors, and where groups were asked for, theirs."""
    said = []
    for show in (render.print_floors, *((render.print_groups,) if len(found.groups) else ())):
        for output, every_row in ways:
            show(found, output, every_row=every_row)
            said.append(capsys.readouterr().out)
    return said


def told_unread(found: local.Positions, each: Rows, capsys: Any) -> list[str]:
    said = []
    for output, every_row in ALL:
        render.print_unread(found, output, each, every_row=every_row)
        said.append(capsys.readouterr().out)
    return said


def both_unread(engines: Engines, policy: str, groups: tuple[str, ...], each: Rows, capsys: Any) -> list[str]:
    """Return what both say of what is unread: the same."""
    selection, now = engines.world.selection(policy), now_ms()
    with reader_for(engines.world.bootstrap) as reader:
        memories = [Memories(engines.folder / engines.local_state, will_save=False) for _ in range(2)]
        mine = read_unread(reader, selection, now, groups=groups, each=each, memories=memories[0])
        target = Target("", reader, selection, engines.connection, past_day, memories[1])
        with spark.read_positions(engines.sender, target, now, groups=groups, unread=each) as theirs:
            said = told_unread(mine, each, capsys), told_unread(theirs, each, capsys)
        for one in memories:
            one.close()
    assert said[0] == said[1]
    return said[1]


def both(
    engines: Engines, policy: str, topics: tuple[str, ...], groups: tuple[str, ...], capsys: Any, ways: Any = ALL
) -> list[str]:
    """Return what both say: the same."""
    selection, now = engines.world.selection(policy, *topics), now_ms()
    with reader_for(engines.world.bootstrap) as reader:
        memories = [Memories(engines.folder / engines.local_state, will_save=False) for _ in range(2)]
        mine = local.read_positions(reader, selection, now, groups=groups, memories=memories[0])
        target = Target("", reader, selection, engines.connection, past_day, memories[1])
        with spark.read_positions(engines.sender, target, now, groups=groups) as theirs:
            said = told(mine, ways, capsys), told(theirs, ways, capsys)
        for one in memories:
            one.close()
    assert said[0] == said[1]
    return said[1]


@pytest.mark.parametrize(("shown", "in_memory"), [pytest.param(40, 50_000, marks=pytest.mark.thorough), (6, 0)])
def test_the_same_floors_and_positions(
    engines: Engines, topics: list[str], shown: int, in_memory: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Also of a table that shows the few that lag most, and where Spark puts rows in order."""
    monkeypatch.setattr(render, "SHOWN", shown)
    monkeypatch.setattr(render, "MOST", 2)
    monkeypatch.setattr(render, "NAMED_TOPICS", 1)
    monkeypatch.setattr("kretain.render.kit.text.NAMED_TOPICS", 1)
    monkeypatch.setattr(spark, "IN_MEMORY", in_memory)
    policy = f"version: 1\ntopics: [{{match: [{', '.join(topics)}]}}]"
    said = both(engines, policy, (), ("*",) if shown == 40 else (f"{topics[0]}-[ab]",), capsys)
    assert ("The 2 of 14 partitions" in said[0]) == (shown == 6)
    assert "and 1 more (-o csv has each partition's)" in said[0]
    for code in ("F2", "F4", "F5"):
        assert code in said[1] + said[3]
    assert (f"{topics[0]}-stray" in said[7]) == (shown == 40)
    assert f"{topics[0]}-a" in said[7]


@pytest.mark.thorough
@pytest.mark.parametrize("in_memory", [50_000, 0])
def test_the_same_is_unread(
    engines: Engines, topics: list[str], in_memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Of groups that are there or gone, that lack a commit, or have one of another log; of sources, too."""
    monkeypatch.setattr(render, "SHOWN", 6 if in_memory == 0 else 40)
    monkeypatch.setattr(render, "MOST", 2)
    monkeypatch.setattr(spark, "IN_MEMORY", in_memory)
    world, group = engines.world, f"{topics[0]}-leaves"
    world.commit(group, topics[0], {0: 1, 1: 9})
    place = tmp_path / "flink.json"
    place.write_text(f'{{"at": {now_ms()}, "positions": [{{"topic": "{topics[0]}", "partition": 1, "offset": 4}}]}}')
    floors = f"{{file: {place}, name: flink}}, {{file: {tmp_path / 'no'}, name: lost, topics: ['{topics[1]}']}}"
    floors += f", {{file: {tmp_path / 'no'}, name: any}}"
    policy = f"version: 1\nfloors: [{floors}]\ntopics: [{{match: [{', '.join(topics)}]}}]"
    engines.local(policy, now_ms())
    world.delete_group(group)
    mine = (f"{topics[0]}*", "file:*")
    asked: list[tuple[tuple[str, ...], Rows]] = [(mine, "topics"), (mine, "partitions"), (("*",), "topics")]
    for groups, each in asked[: 3 if in_memory else 2]:
        said = both_unread(engines, policy, groups, each, capsys)
        rows = [line.split(",") for line in said[3].splitlines()]
        assert f"{topics[0]}-stray" in said[3]
        assert f"{topics[0]}-leaves" in said[3]
        assert all(len(row) == 8 for row in rows)
        if each == "partitions":
            assert [topics[0], "1", group, "9", "1"] in [row[:5] for row in rows]
            assert [topics[1], "", "file:lost", "", ""] in [row[:5] for row in rows]
            assert ["", "", "file:any", "", ""] in [row[:5] for row in rows]
        assert ("that have most to read" in said[0]) == (in_memory == 0)


@pytest.mark.thorough
def test_what_is_remembered_counts_and_nothing_is_remembered_of_it(engines: Engines, capsys: Any) -> None:
    """F6; and compacted topics, which no plan reads, are looked at as ever."""
    world = engines.world
    topic = world.topic(partitions=2, cleanup_policy="compact")
    world.produce(topic, [5 * HOUR] * 10)
    group = f"{topic}-slow"
    policy = consumed(topic) + f"\n  - match: {topic}-other"
    world.topic(name=f"{topic}-other")
    for remembering in (False, True):
        world.commit(group, topic, {0: 3, 1: 0})
        assert f'"group:{group}"' in both(engines, policy, (), (), capsys, ROWS)[0]
        if remembering:
            engines.local(policy, now_ms())
        world.delete_group(group)
        assert (f"group {group} is gone" in both(engines, policy, (), (), capsys, ROWS)[0]) == remembering
    everything = "version: 1\ntopics: [{match: ['*', __consumer_offsets]}]"
    said = both(engines, everything, ("__consumer_offsets",), (), capsys, ROWS)
    assert '"topic": "__consumer_offsets", "partition": 0' in said[0]
    with pytest.raises(NothingMatchesError, match="no topic matches 'no-such-topic'"):
        both(engines, everything, ("no-such-topic",), (), capsys)


@pytest.mark.thorough
def test_the_command_says_the_same(world: World) -> None:
    topic = world.topic(partitions=3)
    world.produce(topic, [HOUR] * 9)
    world.commit(f"{topic}-a", topic, {0: 4, 1: 0})
    arguments = ("offsets", topic, "--groups")
    said = [world.cli(*arguments, *flags, check=0) for flags in ((), ("--spark", "--master", "local[2]"))]
    assert said[0].out == said[1].out
    assert f"{topic}-a" in said[0].out
    for alone in (("--spark-conf", "spark.ui.enabled=false"), ("--connections-per-broker", "3")):
        assert "needs --spark" in world.cli(*arguments, *alone, check=2).err
