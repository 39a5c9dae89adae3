"""The formal model (docs/model) against the engine: its traces happen in the simulated Kafka, to the real code and to mutants."""

from __future__ import annotations

import itertools
import subprocess
from typing import Final

import pytest

from tests.simulation.mutants import WITHOUT
from tests.simulation.traces import FOLDER, Replay, Trace, deleted_by, traces_in
from tests.simulation.world import World
from tests.support.mutate import ROOT, simulated
from tools.model import digest

REMOVED: Final = traces_in((FOLDER / "removed.txt").read_text(encoding="utf-8"))
SAMPLES: Final = traces_in((FOLDER / "samples.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["removed.txt", "samples.txt"])
def test_stored_traces_are_of_the_model_as_it_is(name: str) -> None:
    first = (FOLDER / name).read_text(encoding="utf-8").splitlines()[0]
    assert first == f"# {digest()}", "run: python3 tools/model.py --write"


@pytest.mark.parametrize("trace", [one for one in REMOVED if one.without != "GAP"], ids=lambda one: one.without)
def test_counterexample_of_a_removed_rule_deletes_nothing_by_the_engine(trace: Trace) -> None:
    deleted, why = deleted_by(trace)
    assert not deleted, why


def test_what_no_client_can_see_is_deleted_by_the_engine_too() -> None:
    (gap,) = [one for one in REMOVED if one.without == "GAP"]
    assert deleted_by(gap) == (True, "")


@pytest.mark.parametrize("rules", sorted({one.rules for one in SAMPLES}))
def test_engine_decides_as_the_model_on_its_random_traces(rules: str) -> None:
    decisions = trims = 0
    for trace in SAMPLES:
        if trace.rules != rules:
            continue
        with World(rules) as world:
            replay = Replay(world)
            replay.run(itertools.takewhile(lambda one: one[0] != "clock", trace.actions))  # a plan by a wrong clock: G8
            assert [one[:2] for one in replay.decided] == [(name, real) for name, _, real in replay.decided], (
                trace.actions
            )
            decisions += len(replay.decided)
            trims += sum(model > 0 for _, model, _ in replay.decided)
    assert decisions
    assert trims


@pytest.mark.thorough
@pytest.mark.parametrize("without", WITHOUT)
def test_engine_without_the_rule_deletes_what_the_counterexample_says(without: str) -> None:
    (number,) = [n for n, one in enumerate(REMOVED) if one.without == without]
    done = simulated(WITHOUT[without], "tests.simulation.traces", str(FOLDER / "removed.txt"), str(number))
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.long
def test_model_holds_and_each_of_its_rules_is_needed() -> None:
    done = subprocess.run(["make", "model"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
