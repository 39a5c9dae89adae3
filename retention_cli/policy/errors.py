"""Problems of a policy, each with its place and the remedy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class PolicyProblem:
    """One problem: its file and line (from 1), its key, and what is wrong."""

    source: str
    line: int | None
    key: str
    text: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line is not None else self.source
        return f"{place}: {self.key}: {self.text}" if self.key else f"{place}: {self.text}"


class PolicyError(Exception):
    """The policy can't be used. ``problems`` are in the file's order, at least one."""

    def __init__(self, problems: list[PolicyProblem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems
