"""The look-ups of a single partition."""

from __future__ import annotations

from retention_cli.core.model import PartitionFacts
from retention_cli.decide.lookups import Lookups, Wanted
from retention_cli.policy.settings import Settings


def wanted_lookups(facts: PartitionFacts, settings: Settings, now_ms: int) -> Wanted:
    """Return the times whose ``offset_at`` the decision of one partition needs."""
    return Lookups(facts.topic, settings, now_ms).of(facts)
