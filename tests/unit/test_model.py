"""The values that every room shares."""

from __future__ import annotations

from retention_cli.model import LookUp, PartitionFacts


def test_look_ups_are_laid_into_facts_and_nothing_else_changes() -> None:
    """``with_lookups`` names every field by its place: a field that is added must be added there too."""
    facts = PartitionFacts(*PartitionFacts._fields)  # type: ignore[arg-type]
    plain, data = {5: LookUp(1)}, {6: LookUp(2)}
    assert facts.with_lookups(plain, data) == facts._replace(lookups=plain, data_lookups=data)
