"""Protection through what happens to a cluster: what people set last is live again once all is read."""

from __future__ import annotations

import pytest

from tests.simulation.protect.world import run, sequence_of

FOUND = {
    46: "an operator took another one's raised value for one set by hand, and forgot the original",
    142: "a run's record counted after one of another run that it had not read when it planned",
    20862: "a run's last record replaced that of another run, which had gone on from its first",
}
"""What the simulation found, by seed."""


@pytest.mark.parametrize("seed", FOUND)
def test_kept_protect_sequence_breaks_no_rule(seed: int) -> None:
    run(sequence_of(seed))


def test_protect_sequences_of_seeds_break_no_rule() -> None:
    counts = run(sequence_of(0)).counts
    for seed in range(1, 40):
        counts.update(run(sequence_of(seed)).counts)
    assert counts["raise"] > 5
    assert counts["restore"] > 5
    assert counts["killed"] > 0
