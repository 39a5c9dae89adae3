"""Protection through what happens to a cluster: what people set last is live again once all is read."""

from __future__ import annotations

from tests.simulation.protect.world import run, sequence_of


def test_protect_sequences_of_seeds_break_no_rule() -> None:
    counts = run(sequence_of(0)).counts
    for seed in range(1, 40):
        counts.update(run(sequence_of(seed)).counts)
    assert counts["raise"] > 5
    assert counts["restore"] > 5
    assert counts["killed"] > 0
    assert counts["met"] > 0
