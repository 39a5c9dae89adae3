"""A copy of the tree with one fault put in on purpose."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
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
def mutated(mutant: Mutant, parts: Sequence[str]) -> Iterator[Path]:
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
        path = copy / "retention_cli" / mutant.file
        text = path.read_text(encoding="utf-8")
        if mutant.old not in text:
            raise NotAppliedError(mutant.name)
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        yield copy
