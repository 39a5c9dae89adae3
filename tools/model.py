"""Check the formal model (docs/model): what ``make model`` runs. It needs SPIN, a C compiler and no Python package.

One line per check: the complete model must hold, and without a rule it must not. ``--write`` stores the
counterexamples, and random traces of the complete model, in docs/model/traces; tests/simulation/test_model.py has them.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

MODEL: Final = Path(__file__).parents[1] / "docs" / "model"
TRACES: Final = MODEL / "traces"
SEEDS: Final = range(1, 16)


class Check(NamedTuple):
    """A run of the checker: which rule is removed ("" for none), and the simulation's rules for its trace."""

    rule: str
    model: str
    rules: str = "R1"
    options: tuple[str, ...] = ()
    faults: int = 2

    @property
    def flags(self) -> list[str]:
        """What the model is compiled with."""
        without = [f"-DNO_{self.rule.partition(' ')[0]}"] if self.rule else []
        return [f"-DFAULTS={self.faults}", *self.options, *without]


_AGES: Final = "R4 G3 @cluster"
CHECKS: Final = (
    Check("", "groups"),
    Check("", "groups", "R1 F7", ("-DOUTSIDE",), 3),
    Check("", "groups", "R1 watched", ("-DWATCHED",), 1),
    Check("", "groups", "R1 latest", ("-DYOUNGER",)),
    Check("", "times", _AGES),
    Check("", "times", "R2 header", ("-DR2",)),
    Check("F1", "groups"),
    Check("F2", "groups"),
    Check("F2 added", "groups", "R1 latest", ("-DYOUNGER",)),
    Check("F3", "groups"),
    Check("F4", "groups"),
    Check("F5", "groups"),
    Check("F6", "groups"),
    Check("F7", "groups", "R1 F7", ("-DOUTSIDE",)),
    Check("F8", "groups"),
    Check("F9", "groups"),
    Check("F10", "groups", "R1 watched", ("-DWATCHED",)),
    Check("G1", "times", _AGES),
    Check("G2", "groups", "R3 G2 F7", ("-DOUTSIDE",)),
    Check("G3", "times", _AGES),
    Check("G4", "times", "R2 header", ("-DR2",)),
    Check("G7", "times", _AGES),
    Check("G8", "times", _AGES),
    Check("G9", "times", _AGES),
    Check("M1", "times", _AGES),
    Check("M1 groups", "groups"),
    Check("M2", "times", _AGES),
    Check("M2 groups", "groups"),
    Check("M4", "times", _AGES, (), 3),
    Check("GAP", "groups"),
)


def digest() -> str:
    """Return what the stored traces must be of: the model's text, and the checks."""
    texts = [one.read_text(encoding="utf-8") for one in sorted(MODEL.glob("*.pml"))]
    return hashlib.sha256("\n".join([*texts, repr(CHECKS), repr(SEEDS)]).encode()).hexdigest()


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"model: {' '.join(command)} failed: {(done.stdout + done.stderr).strip()[-500:]}")
    return done.stdout


def _actions(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.lstrip().startswith("@ ")]


def checked(check: Check) -> tuple[int, list[str] | None]:
    """Return how many states there are, and the shortest trace to a violation; None if none violates."""
    with tempfile.TemporaryDirectory(prefix="kretain-model-") as name:
        folder, source = Path(name), f"{check.model}.pml"
        shutil.copy(MODEL / source, folder)
        _run(folder, "spin", "-a", *check.flags, source)
        _run(
            folder,
            "cc",
            "-O0" if check.rule else "-O2",
            "-w",
            "-DBFS",
            "-DSAFETY",
            "-DNOREDUCE",
            "-DVECTORSZ=512",
            "-o",
            "pan",
            "pan.c",
        )
        said = _run(folder, "./pan", "-w24", "-m100000")
        found = re.search(r"errors: (\d+)\s+(\d+) states, stored", said)
        if found is None or "max search depth too small" in said or "out of memory" in said.lower():
            sys.exit(f"model: the checker did not end: {said.strip()[-500:]}")
        if found[1] == "0":
            return int(found[2]), None
        return int(found[2]), _actions(_run(folder, "spin", "-t", "-T", *check.flags, source))


def sampled(check: Check, seed: int) -> list[str]:
    """Return what happens in a random run of the complete model."""
    flags = [f"-DFAULTS={check.faults + 1}", *check.options]
    with tempfile.TemporaryDirectory(prefix="kretain-model-") as name:
        shutil.copy(MODEL / f"{check.model}.pml", name)
        return _actions(_run(Path(name), "spin", "-T", f"-n{seed}", "-u1200", *flags, f"{check.model}.pml"))


def main(given: Sequence[str] | None = None) -> int:
    """Run the checks; return 1 if one does not end as it must."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="store the traces; the complete models are not checked then"
    )
    parser.add_argument("--only", default="", help="rules that begin with this; 'all': the complete models")
    options = parser.parse_args(given)
    if shutil.which("spin") is None or shutil.which("cc") is None:
        sys.exit("model: SPIN and a C compiler are needed: apt-get install spin gcc libc6-dev")
    wrong, traces = 0, {"samples": [f"# {digest()}"], "removed": [f"# {digest()}"]}
    for check in CHECKS:
        if options.only and not (check.rule or "all").startswith(options.only):
            continue
        if options.write and not check.rule:
            if "-DR2" in check.options:  # of R2 it has what G4 guards, and no more
                continue
            traces["samples"] += [line for seed in SEEDS for line in ("", f"= {check.rules}", *sampled(check, seed))]
            continue
        began = time.monotonic()
        states, trace = checked(check)
        took = f"{states:>10,} states {time.monotonic() - began:4.0f} s"
        name = " ".join((f"{check.model}.pml", *(one.removeprefix("-D") for one in check.options)))
        told = "holds" if trace is None else "; ".join(one.removeprefix("@ ") for one in trace)
        who = f"without {check.rule}" if check.rule else "complete"
        sys.stdout.write(f"{who:<18} {name:<20} {took}  {told}\n")
        sys.stdout.flush()
        wrong += (trace is None) != (check.rule == "")
        if trace is not None:
            traces["removed"] += ["", f"= {check.rules}", f"# {check.rule}", *trace]
    if options.write and not wrong and not options.only:
        TRACES.mkdir(exist_ok=True)
        for name, lines in traces.items():
            (TRACES / f"{name}.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    if wrong:
        sys.stderr.write(f"model: {wrong} checks did not end as they must\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
