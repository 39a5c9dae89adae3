"""Brokers that ask who it is: commands with a client's file, users' rights, and a search for secrets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.support.clusters import EmbeddedKafka
from tests.support.world import Cli, World, run_cli


def ask(cluster: EmbeddedKafka, config: Path, *arguments: str, timeout: str = "10s", **environ: Any) -> Cli:
    """Run a command (``groups`` if none is given) at the second listener, with a state directory beside the file."""
    where = ("-b", cluster.secure_bootstrap, "-c", str(config), "--state-dir", str(config.parent / "state"))
    return run_cli(*(arguments or ("groups",)), *where, "--timeout", timeout, **environ)


def allow(
    world: World,
    user: str,
    kind: ResourceType,
    name: str,
    *operations: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> None:
    """Give a user rights, or take them away (``permission``)."""
    wanted = [AclBinding(kind, name, pattern, f"User:{user}", "*", one, permission) for one in operations]
    for future in world.admin.create_acls(wanted).values():
        future.result(60)


def said_of_a_trim(folder: Path, bootstrap: str, config: Path, topic: str) -> list[str]:
    """Plan, trim and look, with -vv and a state directory in ``folder``. Return all of that, what doctor says first."""
    state, plan = folder / "state", folder / "plan.json"
    where = ("-b", bootstrap, "-c", str(config), "--timeout", "10s", "--state-dir", str(state), "-vv")
    rule = ("--consumed-after", "1h")
    doctor = run_cli("doctor", topic, *where, check=0)
    said = [doctor.out, doctor.err]
    command = [sys.executable, "-m", "kretain", "plan", topic, *rule, "--out", str(plan), *where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        listed = subprocess.run(["ps", "-eww", "-o", "args", "e"], check=True, capture_output=True, text=True).stdout
        assert any(str(plan) in line for line in listed.splitlines())
        said += [listed, *running.communicate(timeout=60)]
        assert running.returncode == 0, said[-1]
    trimmed = run_cli("trim", topic, *rule, "--yes", "-o", "json", *where, check=0)
    assert [row["outcome"] for row in trimmed.json()["partitions"]] == ["trimmed"]
    profiled = run_cli("profile", topic, "-o", "json", *where, check=0)  # reads records, through librdkafka
    said += [text for one in (trimmed, profiled) for text in (one.out, one.err)]
    left = [path for path in (plan, *state.rglob("*")) if path.is_file()]
    assert any(path.suffix == ".jsonl" for path in left), "the audit log"
    return said + [path.read_bytes().decode("latin-1") for path in left]


def show_none(said: Iterable[str], *secrets: str) -> None:
    """Fail where one of these texts has a secret."""
    for secret in secrets:
        assert not [text[:200] for text in said if secret in text]
