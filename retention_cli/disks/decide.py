"""R6, over all partitions at once and after their own rules: what was measured comes to decisions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from retention_cli.core.model import Decision, Maybe, PartitionFacts, Reason, TopicPartition, Unknown
from retention_cli.decide.decision import Limit, after_disks, held_by_disks
from retention_cli.policy.settings import Settings


@dataclass(frozen=True, slots=True)
class Measured:
    """What R6 comes to, by partition: all that its decision needs to know of disks.

    ``asked`` has R6's bound and why, of the partitions that it asks anything of; ``limits`` how far the guards let it
    go there, at least. ``unknown`` says why R6 could not look at a partition that it has to do with.
    """

    asked: Mapping[TopicPartition, tuple[int, Reason]] = field(default_factory=dict)
    limits: Mapping[TopicPartition, Maybe[Limit]] = field(default_factory=dict)
    unknown: Mapping[TopicPartition, Unknown] = field(default_factory=dict)


def decide(
    facts: Mapping[TopicPartition, PartitionFacts],
    settings: Mapping[str, Settings],
    decisions: Sequence[Decision],
    measured: Measured,
) -> tuple[Decision, ...]:
    """Return the decisions with R6's in place, where it goes further or is unknown.

    Args:
        facts: of each partition.
        settings: by topic.
        decisions: what the partitions' own rules came to.
        measured: what R6 comes to.
    """
    after = []
    for one in decisions:
        asked, unknown = measured.asked.get(one.tp), measured.unknown.get(one.tp)
        if asked is not None:
            limit = measured.limits[one.tp]
            one = after_disks(facts[one.tp], settings[one.topic], one, limit, asked, unknown)  # noqa: PLW2901
        elif unknown is not None:
            one = held_by_disks(one, unknown)  # noqa: PLW2901
        after.append(one)
    return tuple(after)
