"""Every engine's plan of the same cluster at the same now, and what it means that they are the same."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from kretain.options.rules import topic_arguments
from retention_cli.core.clock import SYSTEM
from retention_cli.decide.guards.limits import Amount
from retention_cli.disks.inventory.read import read_inventory
from retention_cli.disks.inventory_view import READ, InventoryView
from retention_cli.engines.spark.plans import PARTITIONS_A_TASK, Target, make_plans
from retention_cli.engines.spark.shipping import Sender
from retention_cli.plan.make import LocalPlanner, PlanJob
from retention_cli.plan.value import Plan, plan_text
from retention_cli.policy.selection import Selection
from retention_cli.state.memories import Memories
from tests.support.world import World, reader_for


def past_day(_cluster: str) -> Amount:
    return Amount()


@dataclass
class Engines:
    """One cluster, planned by this process and by Spark, each with a memory of its own."""

    session: Any
    world: World
    folder: Path
    local_state: str = "local"
    inventory: Path | None = None
    in_parts: bool = False
    """Whether Spark plans the cluster in many tasks, as it does a giant one."""
    named: tuple[str, ...] = ()
    """TOPIC and TOPIC:PARTITION arguments."""

    def selection(self, policy: str) -> Selection:
        given = topic_arguments(list(self.named))
        return replace(self.world.selection(policy), topics=tuple(given.topics or ()), partitions=given.partitions)

    @cached_property
    def sender(self) -> Sender:
        """What sends values to tasks."""
        return Sender(self.session, self.folder)

    def local(self, policy: str, now: int, clock_ms: Callable[[], int] = SYSTEM.wall_ms) -> Plan:
        inventory = None if self.inventory is None else InventoryView(read_inventory([self.inventory], READ))
        with closing(Memories(self.folder / self.local_state)) as memories, reader_for(self.world.bootstrap) as reader:
            return LocalPlanner(inventory).plan(
                PlanJob(reader, self.selection(policy), now, past_day=past_day, memories=memories, clock_ms=clock_ms)
            )

    def spark(self, policy: str, now: int) -> Plan:
        with closing(Memories(self.folder / "spark")) as memories, reader_for(self.world.bootstrap) as reader:
            job = PlanJob(reader, self.selection(policy), now, past_day, memories)
            target = Target("", job, () if self.inventory is None else (self.inventory,))
            a_task = 1 if self.in_parts else PARTITIONS_A_TASK
            [(_name, plan)] = make_plans(lambda _: self.sender, [target], a_task=a_task)
            assert isinstance(plan, Plan), plan
            whole = replace(plan, decisions=tuple(plan.decisions), counted=None)
            assert plan.totals == whole.totals
            return whole

    def same(self, policy: str, clock: Callable[[], int]) -> Plan:
        """Return the plan that both make, byte for byte.

        Brokers sweep and roll files as they like, so that sizes may change between two looks: a pair counts where
        this process says the same before and after.
        """
        for _ in range(5):
            now = clock()
            before, spark, after = self.local(policy, now), self.spark(policy, now), self.local(policy, now)
            if text_of(before) == text_of(after):
                assert not difference(before, spark), difference(before, spark)
                return spark
        raise AssertionError("the cluster would not stand still")


def text_of(plan: Plan) -> str:
    """The plan as it is saved, but for when memories saw something: each engine has one of its own here."""
    return re.sub(r"\(seen [^)]*\)", "(seen)", plan_text(replace(plan, memory_since_ms=None)))


def difference(one: Plan, other: Plan) -> str:
    left, right = text_of(one).splitlines(), text_of(other).splitlines()
    return "\n".join(difflib.unified_diff(left, right, "local", "spark", lineterm="", n=0))


def reasons_of(plan: Plan, topic: str, partition: int = 0) -> str:
    row = next(one for one in plan.decisions if one.tp == (topic, partition))
    return json.dumps([row.action, row.trim_to, [[one.code, one.text] for one in row.reasons]])
