"""Texts that kretain brings along: what each reason code means (``reasons.md``), and policies to start from.

docs/reasons.md is generated from the first; the others are in ``recipes/``.
"""

from __future__ import annotations

import functools
import re
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from retention_cli.core.files import FileError


class Explanation(NamedTuple):
    """A code, its meaning in one line, and what to do, in Markdown."""

    code: str
    title: str
    text: str


def source() -> str:
    """Return ``reasons.md``."""
    return (files("kretain") / "reasons.md").read_text(encoding="utf-8")


@functools.cache
def explanations() -> dict[str, Explanation]:
    """Return the explanations by code, in the file's order."""
    found: dict[str, Explanation] = {}
    for code, section in re.findall(r"(?ms)^### `([\w-]+)`\n(.*?)(?=^##|\Z)", source()):
        title, _, text = section.strip().partition("\n\n")
        found[code] = Explanation(code, " ".join(title.split()), text)
    return found


RECIPES: Final = ("consumed", "event-time", "min-timestamp", "disk-ceiling", "legal-hold")


def recipe(name: str) -> str:
    """Return a policy as text, in YAML."""
    return (files("kretain") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")


def write_new(path: Path, text: str) -> None:
    """Write a new file, and its folder.

    Raises:
        FileError: it exists, or can't be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise FileError(f"{path} already exists, and is not overwritten: name another file") from None
    except OSError as error:
        raise FileError(f"{path} can't be written: {error.strerror or error}") from None
