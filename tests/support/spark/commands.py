"""Commands with and without Spark, each a process of its own; every engine's plan of the same cluster at the same now."""

from __future__ import annotations

import difflib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from kretain.options.plans import topic_arguments
from retention_cli.decide.guards.limits import Amount
from retention_cli.disks.inventory.read import read_inventory
from retention_cli.disks.inventory_view import READ, InventoryView
from retention_cli.engines.spark.plans import PARTITIONS_A_TASK, Target, make_plans
from retention_cli.engines.spark.shipping import Sender
from retention_cli.plan.make import LocalPlanner, PlanJob
from retention_cli.plan.value import Plan, plan_text
from retention_cli.policy.selection import Selection
from retention_cli.state.memories import Memories
from tests.support.clusters import EmbeddedKafka
from tests.support.spark.clusters import (
    QUICK_START,
    environment,
)
from tests.support.world import World, reader_for, written

SECRET = "hush-5f0c9a"


SMALL = tuple(
    word
    for setting in (
        "executor.memory=512m",
        "driver.host=127.0.0.1",
        "sql.shuffle.partitions=8",
        f"driver.extraJavaOptions={QUICK_START}",
        f"executor.extraJavaOptions={QUICK_START}",
    )
    for word in ("--spark-conf", f"spark.{setting}")
)


@dataclass
class Command:
    """``kretain plan`` (or another), by this process alone or with ``--spark`` on a master."""

    world: World
    folder: Path
    spark_folder: Path
    name: str = "plan"
    environ: Mapping[str, str] = field(default_factory=dict)
    own_group: bool = False

    def run(self, *arguments: str, state: str) -> subprocess.CompletedProcess[str]:
        done = self.start(*arguments, state=state)
        out, err = done.communicate(timeout=600)
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def start(self, *arguments: str, state: str) -> subprocess.Popen[str]:
        address = [] if {"-c", "--fleet"} & {*arguments} else ["-b", self.world.bootstrap]
        where = [*address, "--state-dir", str(self.folder / state), "-o", "json"]
        return subprocess.Popen(
            [sys.executable, "-m", "kretain", self.name, *arguments, *where],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment(self.spark_folder), "PYTHONPATH": ":".join(sys.path), **self.environ},
            start_new_session=self.own_group,
        )

    def json(self, *arguments: str, state: str) -> Any:
        """Run it to exit code 0, and return what it printed."""
        return json.loads(self._out(*arguments, state=state))

    def _out(self, *arguments: str, state: str) -> str:
        done = self.run(*arguments, state=state)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def plan(self, policy: Path, *arguments: str, state: str) -> str:
        return normal(self._out("-p", str(policy), *arguments, state=state))

    def same(self, policy: Path, url: str, *more: str) -> dict[str, Any]:
        """Brokers sweep as they like: a pair counts where this process says the same before and after.

        Each plan has a memory of its own: the second one of a leftover says more than the first.
        """
        for number in range(4):
            before = self.plan(policy, state=f"before-{number}")
            spark = self.plan(policy, "--spark", "--master", url, *more, state=f"spark-{number}")
            if before == self.plan(policy, state=f"after-{number}"):
                assert spark.splitlines() == before.splitlines()
                return dict(json.loads(spark))
        raise AssertionError("the cluster would not stand still")


@contextmanager
def cluster_with_a_password(
    folder: Path, kind: type[EmbeddedKafka] = EmbeddedKafka, nodes: int = 1
) -> Iterator[tuple[World, Path]]:
    """A cluster whose second listener asks for a password (:data:`SECRET`), and the client's file that has it."""
    settings = {
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{SECRET}";'
        ),
    }
    with kind(nodes, settings=settings, secure_protocol="SASL_PLAINTEXT") as kafka:
        yield (
            World(kafka.bootstrap, folder / "state"),
            written(
                folder / "client.properties",
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
                f"sasl.username=alice\nsasl.password={SECRET}\nbootstrap.servers={kafka.secure_bootstrap}\n",
            ),
        )


def normal(text: str) -> str:
    """A plan but for when it was made, and when each memory began and saw a group last."""
    text = re.sub(r'"(created_at|since)": "[^"]*"', r'"\1": ""', text)
    return re.sub(r"\(seen [^)]*\)", "(seen)", text)


def packed_environment(folder: Path) -> Path:
    """What the commands of docs/spark.md make."""
    packed, environment = folder / "kretain-env.tar.gz", folder / "env"
    for command in (
        [sys.executable, "-m", "venv", str(environment)],
        [str(environment / "bin" / "pip"), "install", "-q", f"{Path(__file__).parents[3]}[parquet]"],
        ["tar", "czf", str(packed), "-C", str(environment), "."],
    ):
        made = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
        assert made.returncode == 0, made.stderr
    return packed


# As where each machine has what executors need: the tests' own Python.
INSTALLED = (*SMALL, "--spark-conf", f"spark.pyspark.python={sys.executable}")


ON_YARN = ("--spark", "--master", "yarn", *INSTALLED)


def past_day(_cluster: str) -> Amount:
    return Amount()


@dataclass
class Engines:
    """One cluster, planned by this process and by Spark, each with a memory of its own."""

    session: Any
    world: World
    folder: Path
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

    def local(self, policy: str, now: int) -> Plan:
        inventory = None if self.inventory is None else InventoryView(read_inventory([self.inventory], READ))
        with closing(Memories(self.folder / "local")) as memories, reader_for(self.world.bootstrap) as reader:
            return LocalPlanner(inventory).plan(PlanJob(reader, self.selection(policy), now, past_day, memories))

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


def reasons_of(plan: Plan, topic: str) -> str:
    row = next(one for one in plan.decisions if one.tp == (topic, 0))
    return json.dumps([row.action, row.trim_to, [[one.code, one.text] for one in row.reasons]])
