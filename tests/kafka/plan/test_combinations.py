"""KIP-870's test plan over a real broker: a topic for each combination of settings (R2, R4, G2, G3)."""

from __future__ import annotations

from retention_cli.decide.guards.limits import Amount
from retention_cli.plan.make import LocalPlanner, PlanJob
from retention_cli.plan.value import Plan
from retention_cli.state.memories import Memories
from tests.support import combinations as c
from tests.support.world import World, now_ms, reader_for


def entry(one: c.Combination) -> str:
    lines = [f"  - match: {one.name}", f"    unconsumed: {one.unconsumed}"]
    if one.age:
        lines.append(f"    retention.ms: {c.AGE_MS}")
    if one.event:
        lines.append(f"    retention.max.eventtime.ms: {c.EVENT_MS}")
    if one.log_append:
        lines.append('    retention.eventtime.source: "header:et"')
    if one.wall:
        lines.append(f"    retention.min.wallclock.ms: {c.WALL_MS}")
    return "\n".join(lines)


def test_settings_combination_on_a_broker_matches_the_rules(world: World) -> None:
    then = now_ms()
    stamps = [then + hours * c.HOUR for hours in c.EVENT_HOURS]
    policy = "version: 1\ntopics:\n" + "\n".join(entry(one) for one in c.ALL)
    watched = [one.name for one in c.ALL if one.watched]

    def plan_at(clock_ms: int, *topics: str) -> Plan:
        with reader_for(world.bootstrap) as reader:
            return LocalPlanner().plan(
                PlanJob(
                    reader,
                    world.selection(policy, *topics),
                    clock_ms,
                    past_day=lambda _: Amount(),
                    memories=Memories(world.state_dir),
                    clock_ms=lambda: clock_ms,
                )
            )

    for one in c.ALL:
        kind = "LogAppendTime" if one.log_append else "CreateTime"
        world.topic(name=one.name, message_timestamp_type=kind, message_timestamp_after_max_ms=str(2**63 - 1))

    def produce(first: int, last: int) -> None:
        world.produce_many(
            {one.name: stamps[first:last] for one in c.ALL},
            headers=lambda stamp: [("et", str(stamp).encode())],
        )

    produce(0, 2)
    for one in c.ALL:
        world.commit(f"reader-of-{one.name}", one.name, c.COMMITTED)
    plan_at(then, *watched)
    produce(2, 4)
    plan_at(then + c.LOOKED_AGAIN_MS, *watched)
    found = {one.topic: (one.action, one.trim_to) for one in plan_at(then + c.DECIDED_MS).decisions}
    assert found == {one.name: one.expected for one in c.ALL}
