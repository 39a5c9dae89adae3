"""Apply R6's results to the decisions, over all partitions at once and after their own rules. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from retention_cli.core.model import Decision, Maybe, PartitionFacts, Reason, TopicPartition, Unknown
from retention_cli.decide.decision import Limit, after_disks, held_by_disks
from retention_cli.policy.settings import Settings


@dataclass(frozen=True, slots=True)
class Measured:
    """R6's results by partition: all that a decision needs to know of disks.

    ``asked`` has R6's bound and its reason for each partition that R6 trims; ``limits`` has the guards' limits, for at
    least those partitions. ``unknown`` is why R6 could not judge a partition on a disk that is, or may be, above its
    ceiling.
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
    """Return the decisions, replaced by R6's where R6 trims further or is unknown.

    Args:
        facts: the facts of each partition.
        settings: the settings by topic.
        decisions: the decisions by the partitions' own rules.
        measured: R6's results.
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
