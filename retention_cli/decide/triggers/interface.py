"""The trigger interface: a trigger asks for a bound (docs/rules.md, Words)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from retention_cli.core.model import Code, PartitionFacts, Reason, RuleName, Unknown
from retention_cli.core.units import format_time
from retention_cli.policy.settings import Settings


class Bound(NamedTuple):
    """Every record with an offset below ``offset`` may be trimmed. ``notes`` are remarks on the bound."""

    offset: int
    notes: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class NotEnabled:
    """The policy does not turn this trigger on for the topic."""


Ask = Bound | NotEnabled | Unknown


class Trigger(Protocol):
    """A pure rule over facts, settings and a given now (Unix ms)."""

    code: Code

    @property
    def rule(self) -> RuleName | None:
        """The rule's other name."""
        return self.code.rule

    def on(self, facts: PartitionFacts, settings: Settings) -> bool:
        """Return whether the rule may ask for a bound. If not, it needs no look-ups either.

        Most rules are off for most topics: this is called first, and is fast.
        """
        ...

    def cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return the times (Unix ms) whose ``offset_at`` the trigger needs, given the facts known so far."""
        del facts, settings, now_ms
        return ()

    def data_cutoffs(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> tuple[int, ...]:
        """Return the times (Unix ms) whose answer must be a data record, not a transaction marker (R2, R3)."""
        del facts, settings, now_ms
        return ()

    def ask(self, facts: PartitionFacts, settings: Settings, now_ms: int) -> Ask:
        """Return the bound that the rule asks for."""
        ...


def offset_at(
    facts: PartitionFacts, time_ms: int, settings: Settings, now_ms: int, *, data: bool = False
) -> Bound | Unknown:
    """Return the look-up's answer as a bound (docs/rules.md, Look-ups); unknown if it was not read.

    ``data``: the answer must be at a data record. A record in the future that ends the prefix is noted, as it blocks
    trimming (G4).
    """
    if time_ms <= 0:  # no record is older; negative times have special meanings in ListOffsets
        return Bound(0)
    answer = (facts.data_lookups if data else facts.lookups).get(time_ms)
    if answer is None:
        return Unknown.because("lookup", f"the offset at {time_ms} was not looked up")
    if isinstance(answer, Unknown):
        return answer
    notes = () if answer.note is None else (answer.note,)
    if answer.timestamp is not None and answer.timestamp > now_ms + settings.max_ahead_ms:
        text = f"the record at offset {answer.offset:,} is stamped {format_time(answer.timestamp)}, in the future"
        notes = (*notes, Reason(Code.G4, f"{text}; later records cannot be trimmed by age before it"))
    return Bound(answer.offset, notes)
