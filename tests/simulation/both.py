"""Walk a real cluster and the simulated one through the same random steps, and compare them after each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol


class Compared(Protocol):
    """Both clusters. Each step is a method that takes the random source."""

    def compare(self, after: str) -> None:
        """Fail where their answers differ; ``after`` names the steps so far."""
        ...


def walk(both: Compared, steps: Sequence[str], count: int, seed: int) -> None:
    """Take so many of the steps, by a seed, and compare after each."""
    chance, taken = random.Random(seed), list[str]()
    for _ in range(count):
        taken.append(chance.choice(steps))
        getattr(both, taken[-1])(chance)
        both.compare(f"(seed {seed}: {' '.join(taken)})")
