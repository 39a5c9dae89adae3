"""kretain's two promises under faults: no record that the policy protects is ever gone, and every report is true.

``FAULTS_SEED=7 FAULTS_ROUNDS=25 pytest -m long tests/kafka/faults`` plays what failed again, up to that round.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import QUICK
from tests.kafka.faults.arena import Arena
from tests.kafka.faults.load import LinkedKafka
from tests.kafka.faults.runs import FAULTS, MODES, STEPS, rounds
from tests.support.world import World

SETTINGS = {
    **QUICK,
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
}
SEED = int(os.environ.get("FAULTS_SEED", "1"))
FEW = 6
"""So many rounds have every fault and every way to run kretain."""


def test_fault_round_is_determined_by_its_seed_and_covers_every_fault() -> None:
    dealt = list(rounds(7, 40))
    assert [list(rounds(7, 40)), list(rounds(7, 10))] == [dealt, dealt[:10]]
    assert list(rounds(8, 40)) != dealt
    for seed in range(20):
        few = list(rounds(seed, FEW))
        assert ({fault for one in few for fault in one.faults}, {one.mode for one in few}) == ({*FAULTS}, {*MODES})
    assert {one.step for one in rounds(1, 200) if one.mode == "trim, killed at a step"} == {*STEPS}


@pytest.fixture
def volume() -> Iterator[Path | None]:
    """A small volume for the state directory, where one can be mounted; else its disk is never full."""
    folder = Path(tempfile.mkdtemp(prefix="kretain-faults-"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "kretain-test", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0
    yield folder if mounted else None
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=False)
    folder.rmdir()


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(FEW, marks=[pytest.mark.thorough, pytest.mark.timeout(600)]),
        pytest.param(
            int(os.environ.get("FAULTS_ROUNDS", "200")), marks=[pytest.mark.long, pytest.mark.timeout(14_400)]
        ),
    ],
    ids=["few", "many"],
)
def test_faults_delete_no_protected_record_and_reports_are_true(
    count: int, volume: Path | None, tmp_path: Path
) -> None:
    with LinkedKafka(3, settings=SETTINGS) as kafka:
        arena = Arena(kafka, World(kafka.bootstrap, (volume or tmp_path) / "state"), tmp_path, volume, SEED)
        with arena.load.going_on():
            arena.warm_up()
            for one in rounds(SEED, count):
                played = arena.play(one)
                print(f"{one.number} {'+'.join(one.faults)}, {one.mode} {one.step}: {played}", flush=True)  # noqa: T201
                assert played["trimmed"] > 0
