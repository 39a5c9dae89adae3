"""Commands with and without Spark, each as a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.clusters import EmbeddedKafka
from tests.support.spark.clusters import (
    QUICK_START,
    environment,
)
from tests.support.world import World

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

    def plan(self, policy: Path, *arguments: str, state: str) -> str:
        done = self.run("-p", str(policy), *arguments, state=state)
        assert done.returncode == 0, done.stderr
        return normal(done.stdout)

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
        client = folder / "client.properties"
        client.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f"sasl.username=alice\nsasl.password={SECRET}\nbootstrap.servers={kafka.secure_bootstrap}\n"
        )
        yield World(kafka.bootstrap, folder / "state"), client


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
