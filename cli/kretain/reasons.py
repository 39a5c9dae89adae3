"""What each reason code means and what to do about it: ``reasons.md``, from which docs/reasons.md is generated."""

from __future__ import annotations

import functools
import re
from importlib.resources import files
from typing import NamedTuple


class Explanation(NamedTuple):
    """A code, its meaning in one line, and what to do, in Markdown."""

    code: str
    title: str
    text: str


def source() -> str:
    """Return the file, in Markdown."""
    return (files("kretain") / "reasons.md").read_text(encoding="utf-8")


@functools.cache
def explanations() -> dict[str, Explanation]:
    """Return the explanations by code, in the file's order."""
    found: dict[str, Explanation] = {}
    for code, section in re.findall(r"(?ms)^### `([\w-]+)`\n(.*?)(?=^##|\Z)", source()):
        title, _, text = section.strip().partition("\n\n")
        found[code] = Explanation(code, " ".join(title.split()), text)
    return found
