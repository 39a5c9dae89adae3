"""Choose a command's topics: those that the policy manages and that its TOPIC arguments name. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from retention_cli.core.codes import Code
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.policy.model import Policy, matches
from retention_cli.policy.settings import Settings
from retention_cli.policy.shown import plain, shown
from retention_cli.policy.suggestions import first_few, nearest, unmatched

_WITHOUT_R6: Final = Reason(
    Code.R6,
    "log.retention.disk.usage.percent is ignored: it needs all topics that the policy manages, and TOPIC "
    "arguments name only some; run without them to use it",
)


class NothingMatchesError(Exception):
    """The policy, or a TOPIC, matches no topic of this cluster. ``problems`` are lines for display, at least one."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Selection:
    """A policy, and the TOPIC arguments that choose among the topics it manages.

    ``partitions`` are those of TOPIC:PARTITION arguments, whose topics are in ``topics``, too. They narrow what is
    shown and trimmed, never what is decided: a topic's rules look at all of it (:func:`retention_cli.trim.asked`).
    """

    policy: Policy
    topics: tuple[str, ...] = ()
    partitions: frozenset[TopicPartition] = frozenset()

    def settings_for(self, topic: str) -> Settings | None:
        """Return a topic's settings, None if it is not chosen or not managed."""
        if self.topics and not matches(self.topics, topic):
            return None
        return self.policy.settings_for(topic)

    @property
    def given(self) -> tuple[str, ...]:
        """The TOPIC and TOPIC:PARTITION arguments."""
        parted = by_key((one.topic, f"{one.topic}:{one.partition}") for one in sorted(self.partitions))
        return tuple(text for topic in self.topics for text in parted.get(topic, (topic,)))

    @property
    def whole_topics(self) -> tuple[str, ...]:
        """The TOPIC arguments without a partition."""
        parted = {one.topic for one in self.partitions}
        return tuple(one for one in self.topics if one not in parted)

    @property
    def parted(self) -> dict[str, list[int]]:
        """The topics of which some partitions alone are chosen, and these."""
        parts = (one for one in sorted(self.partitions) if not matches(self.whole_topics, one.topic))
        return by_key((one.topic, one.partition) for one in parts)

    def asks_for(self, tp: TopicPartition) -> bool:
        """Return whether a partition of a chosen topic is itself chosen: named alone, or its topic is as a whole."""
        return not self.partitions or tp in self.partitions or matches(self.whole_topics, tp.topic)

    @property
    def decided_alone(self) -> Selection:
        """The selection, without a ceiling if TOPIC arguments choose some topics: R6 is decided over all of them.

        Otherwise the chosen topics would be trimmed for all the others.
        """
        if not self.leaves_ceiling_out:
            return self
        return replace(self, policy=replace(self.policy, disks=replace(self.policy.disks, percent=None)))

    @property
    def leaves_ceiling_out(self) -> bool:
        """Whether R6 is left out because of TOPIC arguments."""
        return bool(self.topics) and self.policy.disks.percent is not None


def check_matches(selection: Selection, names: Collection[str]) -> list[Reason]:
    """Return a note for each entry that matches none of the cluster's topics.

    Raises:
        NothingMatchesError: no entry matches any topic, or a TOPIC argument matches none.
    """
    for pattern in selection.topics:
        if not any(matches((pattern,), name) for name in names):
            near = nearest([pattern], names)
            hint = f"; did you mean {near}?" if near is not None else " (or this user lacks DESCRIBE on it)"
            raise NothingMatchesError(f"no topic matches {shown(pattern)}{hint}")
    policy = selection.policy
    missing = unmatched(policy, names)
    if not any(selection.settings_for(name) is not None for name in names):
        if selection.topics:
            raise NothingMatchesError(f"{policy.source}: no entry matches {', '.join(map(plain, selection.topics))}")
        raise NothingMatchesError(*map(str, first_few(missing)))
    notes = [Reason("policy", str(problem)) for problem in missing]
    return [*notes, _WITHOUT_R6] if selection.leaves_ceiling_out else notes
