"""Problems of a policy, each with its place and the remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from retention_cli.core.file_problems import schema_problem
from retention_cli.core.printable import plain, shown
from retention_cli.core.units import count

MOST_REPORTED: Final = 20
"""The most problems of a file that are shown; the others are counted."""


@dataclass(frozen=True, slots=True, order=True)
class PolicyProblem:
    """One problem: its file and line (from 1), its key, and what is wrong."""

    source: str
    line: int | None
    key: str
    text: str

    @classmethod
    def at(cls, place: str, key: str, text: str) -> PolicyProblem:
        """Return a problem of a key that was set at a place such as ``kretain.yaml:7``, or outside the file."""
        source, _, line = place.rpartition(":")
        return cls(source, int(line), key, text) if line.isdigit() else cls(place, None, key, text)

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line is not None else self.source
        return f"{place}: {plain(self.key)}: {self.text}" if self.key else f"{place}: {self.text}"


class FileError(Exception):
    """A file of settings can't be used. ``problems`` are in its order, at least one; ``lines`` show the first."""

    def __init__(self, problems: Sequence[PolicyProblem]) -> None:
        self.problems = list(problems)
        self.lines = [str(problem) for problem in self.problems[:MOST_REPORTED]]
        if (more := len(self.problems) - MOST_REPORTED) > 0:
            self.lines.append(f"{self.problems[0].source}: … and {count(more, 'more problem')}: fix these first")
        super().__init__("; ".join(self.lines))


class PolicyError(FileError):
    """The policy can't be used."""


class ItemsError(ValueError):
    """Several parts of a value are wrong. A ValueError, as pydantic wants it.

    ``items``: each part's path from the value (keys and list indexes; empty for the value itself), and what is wrong.
    """

    def __init__(self, items: Sequence[tuple[tuple[str | int, ...], str]]) -> None:
        super().__init__("; ".join(text for _, text in items))
        self.items = list(items)


def value_problem(item: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, from one of the errors in pydantic's ValidationError."""
    problem = schema_problem(item)
    if item["type"] in ("literal_error", "bool_type"):
        unquoted = problem.replace("'", "")
        return f"{shown(item['input'])} {unquoted}"
    return problem
