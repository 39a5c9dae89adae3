"""Mutants tried by a simulation: each is applied to a copy of the tree, which is run up to so many steps."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from tests.support.mutate import Mutant, NotAppliedError, mutated


def tried(mutant: Mutant, module: str, options: Sequence[str]) -> str:
    """Run a simulation on a mutant; return what it found."""
    with mutated(mutant, ["tests/simulation", "tests/support"]) as copy:
        (copy / "tests" / "__init__.py").touch()
        command = [sys.executable, "-m", module, "--brief", *options]
        environ = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'cli'}"}
        done = subprocess.run(command, cwd=copy, env=environ, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return "NOT FOUND"
    found = re.search(r"after ([\d,]+ steps): (.*)", done.stdout)
    if found is None:
        return f"CRASHED: {done.stderr.strip().splitlines()[-1][:100] if done.stderr else done.stdout[:100]}"
    return f"{found[1]}: {found[2][:90]}"


def main(
    about: str | None,
    module: str,
    mutants: Sequence[Mutant],
    elsewhere: Mapping[str, str],
    options_for: Callable[[Mutant], Sequence[str]] = lambda _: (),
    *,
    steps: int,
    first: int,
) -> int:
    """Try the mutants; return 1 where one was not found.

    Args:
        about: what ``--help`` says.
        module: the simulation's.
        mutants: those to try.
        elsewhere: why it can't find some, by name.
        options_for: gives a mutant's own options.
        steps: how many at the most, unless the command line says otherwise.
        first: the first seed, likewise.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--first", type=int, default=first, help="the first seed")
    parser.add_argument("--after", type=int, default=0, help="leave out so many mutants")
    parser.add_argument("--only", default="", help="names that contain this")
    given = parser.parse_args()
    missed = 0
    for number, mutant in enumerate(mutants, 1):
        if number > given.after and given.only in mutant.name:
            options = ["--seeds", f"{given.first}-{given.first + 10**6}", "--steps", str(given.steps)]
            try:
                told = tried(mutant, module, [*options, *options_for(mutant)])
            except NotAppliedError:
                told = "DOES NOT APPLY"
            if not told[0].isdigit() and mutant.name in elsewhere:
                told = f"{told}: {elsewhere[mutant.name]}"
            else:
                missed += not told[0].isdigit()
            print(f"{number:>2} {mutant.name:<45} {told}", flush=True)
    return 1 if missed else 0
