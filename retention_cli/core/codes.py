"""The codes of rules, guards and floors (docs/rules.md), as reasons and plans have them."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

RuleName = Literal["consumed", "event-time", "min-timestamp", "forced-age", "size", "disk-usage"]
"""What a plan's ``rule`` says."""


class Code(StrEnum):
    """A code. ``rule`` is the rule's other name; guards, floors and R7 (R1 or R4 with shorter times) have none."""

    rule: RuleName | None

    def __new__(cls, code: str, rule: RuleName | None = None) -> Self:
        """Return the member; it is the code as text."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.rule = rule
        return member

    R1 = "R1", "consumed"
    R2 = "R2", "event-time"
    R3 = "R3", "min-timestamp"
    R4 = "R4", "forced-age"
    R5 = "R5", "size"
    R6 = "R6", "disk-usage"
    R7 = "R7"
    G1 = "G1"
    G2 = "G2"
    G3 = "G3"
    G4 = "G4"
    G5 = "G5"
    G6 = "G6"
    G7 = "G7"
    G8 = "G8"
    G9 = "G9"
    F1 = "F1"
    F2 = "F2"
    F3 = "F3"
    F4 = "F4"
    F5 = "F5"
    F6 = "F6"
    F7 = "F7"
    F8 = "F8"
    F9 = "F9"
    F10 = "F10"
    M4 = "M4"
