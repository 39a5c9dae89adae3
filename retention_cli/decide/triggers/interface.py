"""What a trigger is: a rule that asks for a bound (docs/rules.md, Words)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from retention_cli.core.model import PartitionFacts, Reason, Rule, Unknown
from retention_cli.core.units import format_time
from retention_cli.policy.settings import Settings


class Bound(NamedTuple):
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

    def on(self, facts: PartitionFacts, settings: Settings) -> bool:
        """Return whether the rule may ask for anything at all. Where it may not, it asks for no times either.

        Most rules are off for most topics: this is asked first, and is quick.
        """
        ...

    def cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return the times whose ``offset_at`` the trigger wants, in Unix ms, given what is known already."""
        del facts, settings, now_ms
        return ()

    def data_cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return the times for which only a data record will do as an answer, no transaction marker (R2, R3)."""
        del facts, settings, now_ms
        return ()

    def ask(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> Ask:
        """Return the bound that the rule asks for."""
        ...


def offset_at(
    facts: PartitionFacts, time_ms: int, settings: Settings, now_ms: int, *, data: bool = False
) -> Bound | Unknown:
    """Return the look-up's answer as a bound (docs/rules.md, Look-ups), unknown where it wasn't read.

    ``data`` asks for the answer that stands at a data record. A record in the future that ends the prefix is
    named, as what blocks trimming (G4).
    """
    if time_ms <= 0:  # no record is older than that; and below zero Kafka's own signs begin
        return Bound(0)
    answer = (facts.data_lookups if data else facts.lookups).get(time_ms)
    if answer is None:
        return Unknown.because("lookup", f"the offset at {time_ms} was not looked up")
    if isinstance(answer, Unknown):
        return answer
    notes = () if answer.note is None else (answer.note,)
    if answer.timestamp is not None and answer.timestamp > now_ms + settings.max_ahead_ms:
        text = f"the record at offset {answer.offset:,} is stamped {format_time(answer.timestamp)}, in the future"
        notes = (*notes, Reason("G4", f"{text}: what follows it can't go by age before it does"))
    return Bound(answer.offset, notes)
