"""What a trigger is: a rule that asks for a bound (RULES.md, Words)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from retention_cli.model import PartitionFacts, Reason, Rule, Unknown
from retention_cli.policy.settings import Settings


@dataclass(frozen=True, slots=True)
class Bound:
    """Every record with an offset below ``offset`` may go. ``notes`` say what is worth knowing of it."""

    offset: int
    notes: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class NotAsked:
    """The policy doesn't turn this trigger on for the topic."""


Ask = Bound | NotAsked | Unknown


class Trigger(Protocol):
    """A pure rule over facts, settings and a given now (Unix ms)."""

    rule: Rule
    code: str

    def cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return the times whose ``offset_at`` the trigger wants, in Unix ms, given what is known already."""
        ...

    def ask(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> Ask:
        """Return the bound that the rule asks for."""
        ...


def offset_at(facts: PartitionFacts, time_ms: int) -> Bound | Unknown:
    """Return the look-up's answer as a bound (RULES.md, Look-ups), unknown where it wasn't read."""
    answer = facts.lookups.get(time_ms)
    if answer is None:
        return Unknown.because("lookup", f"the offset at {time_ms} was not looked up")
    if isinstance(answer, Unknown):
        return answer
    return Bound(answer.offset, () if answer.note is None else (answer.note,))
