"""A copy of the tree with faults put in on purpose, and what finds them: a simulation of so many steps, or tests."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]


class Mutant(NamedTuple):
    """What is changed in which file of ``retention_cli``. ``rules``: those of the simulation that could show it."""

    name: str
    file: str
    old: str
    new: str
    rules: str | None = None


class NotAppliedError(LookupError):
    """The text that a mutant changes is not there (any more)."""


@contextlib.contextmanager
def mutated(parts: Sequence[str], *mutants: Mutant) -> Iterator[Path]:
    """Give a folder with the code, mutated, and these parts of the project; it is deleted at the end.

    Raises:
        NotAppliedError: see there.
    """
    with tempfile.TemporaryDirectory(prefix="kretain-mutant-") as folder:
        copy = Path(folder)
        for name in ("retention_cli", "cli", *parts):
            if (ROOT / name).is_file():
                shutil.copy(ROOT / name, copy / name)
            else:
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for mutant in mutants:
            path = copy / "retention_cli" / mutant.file
            text = path.read_text(encoding="utf-8")
            if mutant.old not in text:
                raise NotAppliedError(mutant.name)
            path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        yield copy


def run_in(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'cli'}"}
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=copy, env=environ, capture_output=True, text=True, check=False
    )


def simulated(mutants: Sequence[Mutant], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module of the simulation on mutated code."""
    with mutated(["tests/simulation", "tests/support", "tests/__init__.py"], *mutants) as copy:
        return run_in(copy, *arguments)


def try_each(
    parser: argparse.ArgumentParser,
    mutants: Sequence[Mutant],
    found_by: Callable[[Mutant, argparse.Namespace], tuple[bool, str]],
    elsewhere: Mapping[str, str] | None = None,
) -> int:
    """Try the mutants that the command line names; return 1 where one was not found.

    Args:
        parser: of the command line, with the caller's own options.
        mutants: those to try.
        found_by: says whether a mutant was found, and by what.
        elsewhere: why it can't find some, by name.
    """
    parser.add_argument("--after", type=int, default=0, help="leave out so many mutants")
    parser.add_argument("--only", default="", help="names that contain this")
    given = parser.parse_args()
    missed = 0
    for number, mutant in enumerate(mutants, 1):
        if number <= given.after or given.only not in mutant.name:
            continue
        began = time.monotonic()
        try:
            found, told = found_by(mutant, given)
        except NotAppliedError:
            found, told = False, "DOES NOT APPLY"
        if not found and mutant.name in (elsewhere or {}):
            found, told = True, f"{told}: {(elsewhere or {})[mutant.name]}"
        missed += not found
        print(f"{number:>2} {mutant.name:<50} {time.monotonic() - began:>4.0f} s  {told}", flush=True)
    return 1 if missed else 0


def try_by_simulation(
    about: str | None,
    module: str,
    mutants: Sequence[Mutant],
    elsewhere: Mapping[str, str],
    options_for: Callable[[Mutant], Sequence[str]] = lambda _: (),
    *,
    steps: int,
    first: int,
) -> int:
    """Try the mutants by a simulation; return 1 where one was not found.

    Args:
        about: what ``--help`` says.
        module: the simulation's.
        mutants: those to try.
        elsewhere: why it can't find some, by name.
        options_for: gives a mutant's own options.
        steps: how many at most, unless the command line says otherwise.
        first: the first seed, unless the command line names another.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--first", type=int, default=first, help="the first seed")

    def found_by(mutant: Mutant, given: argparse.Namespace) -> tuple[bool, str]:
        seeds = ("--seeds", f"{given.first}-{given.first + 10**6}", "--steps", str(given.steps))
        done = simulated([mutant], module, "--brief", *seeds, *options_for(mutant))
        if done.returncode == 0:
            return False, "NOT FOUND"
        found = re.search(r"after ([\d,]+ steps): (.*)", done.stdout)
        if found is None:
            return False, f"CRASHED: {(done.stderr.strip().splitlines()[-1:] or [done.stdout])[0][:100]}"
        return True, f"{found[1]}: {found[2][:90]}"

    return try_each(parser, mutants, found_by, elsewhere)
