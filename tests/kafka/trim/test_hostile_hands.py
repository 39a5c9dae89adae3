"""What lies in records, who looks at our processes, and a network that parts: nothing shown, nothing claimed too much."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import archiving
from tests.support.hostile_names import HOSTILE, odd
from tests.support.world import HOUR, World, now_ms

ROOT = Path(__file__).parents[3]


@pytest.fixture
def topic(world: World) -> str:
    """Ten records whose values, header names and header values move cursors; so does the metadata of a commit of 8."""
    topic = world.topic("contents")
    text = HOSTILE.encode()
    stamps = [now_ms() - 100 * HOUR + n for n in range(10)]
    world.produce_at(topic, stamps, value=text, headers=lambda _: [(HOSTILE, text)])
    world.commit(f"{topic}-g", topic, 8, metadata=HOSTILE)
    return topic


def test_escape_sequences_in_records_and_commits_reach_no_terminal(world: World, topic: str, tmp_path: Path) -> None:
    policy, store = tmp_path / "policy.yaml", tmp_path / "archive"
    policy.write_text(archiving.policy(topic, store))
    for words in (
        ("profile", topic),
        ("offsets", topic, "--group", f"{topic}-*"),
        ("explain", topic, "-p", str(policy)),
        ("trim", "-p", str(policy), "--yes"),
        ("archive", "list", str(store)),
        ("archive", "verify", str(store)),
        ("restore", topic, "--from", str(store), "--to", world.topic("restored"), "--yes"),
    ):
        for output in ("table",) if words[0] in ("trim", "restore") else ("table", "json"):
            said = world.cli(*words, "-o", output)
            assert (said.code, odd(said)) == (0, set()), (words, output, said.out + said.err)
    assert world.ends(topic) == (8, 10)


def test_process_list_shows_no_secret(world: World, topic: str, tmp_path: Path) -> None:
    """Neither in arguments nor in the environment that others see of a process, or of a child of it."""
    client = tmp_path / "client.properties"
    client.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="s3cr3t";\n'
    )
    client.chmod(0o600)
    command = [sys.executable, "-m", "kretain", "plan", topic, "--older-than", "1h", "-b", world.bootstrap]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'cli'}{os.pathsep}{ROOT}"}
    with subprocess.Popen(
        [*command, "-c", str(client), "--timeout", "5s"], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        seen = 0
        while process.poll() is None:
            for pid in (process.pid, *_children(process.pid)):
                for name in ("cmdline", "environ"):
                    try:
                        text = Path(f"/proc/{pid}/{name}").read_bytes()
                    except OSError:
                        continue
                    seen += b"kretain" in text
                    assert b"s3cr3t" not in text
            time.sleep(0.02)
        out, err = process.communicate()
    assert seen > 10
    assert process.returncode == 1  # that listener knows no SASL
    assert b"s3cr3t" not in out + err


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@pytest.mark.thorough
@pytest.mark.timeout(450)
@pytest.mark.parametrize(
    ("apart_s", "outcomes"),
    [(3, {"trimmed"}), pytest.param(30, {"unverified", "trimmed", "failed"}, marks=pytest.mark.long)],
    ids=["a moment", "longer than a request may take"],
)
def test_network_partition_during_a_trim_is_reported_truthfully(
    apart_s: int, outcomes: set[str], tmp_path: Path
) -> None:
    """In a network of its own, whose only link goes down when the delete is about to be sent: the report stays true."""
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("a network namespace needs root, and unshare")
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}"}
    command = ["unshare", "--net", sys.executable, "-m", "tests.support.parted", str(tmp_path), str(apart_s)]
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=430, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["sent"] > 0
    assert found["outcome"] in outcomes, found
    assert found["records"] <= found["log_start"], "no more is claimed than is gone"
    if found["outcome"] == "failed":
        assert found["log_start"] == 0, "a failure is none where it was carried out"
    assert found["log_start"] in (0, 8), "and never further than the group has read"
