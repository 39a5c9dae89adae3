"""What is wanted of a topic: by the policy, the operator, or else the broker's own retention. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from retention_cli.advise.facts import TopicState
from retention_cli.advise.format import MIB, MINUTE
from retention_cli.advise.kept import retention_ms
from retention_cli.advise.sure import or_unknown, sure
from retention_cli.core.model import Maybe
from retention_cli.policy.settings import Settings

SMALLEST_SEGMENT_BYTES: Final = MIB
"""Brokers from 4.x on accept no smaller ``segment.bytes``."""

WantedBy = Literal["--want", "policy", "retention.ms"]


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked for beyond the topic's own settings; None if nothing is.

    ``keep_ms`` is how long data is wanted and ``topic_bytes`` how large the topic may become (one copy of it).
    ``least_segment_ms`` is the smallest ``segment.ms`` that may be advised: managed clusters often want a day.
    """

    keep_ms: int | None = None
    topic_bytes: int | None = None
    least_segment_ms: int = MINUTE
    policy: Settings | None = None

    @property
    def consumed_after_ms(self) -> int | None:
        """R1's T, if the policy enables R1."""
        return None if self.policy is None else self.policy.consumed_after_ms

    @property
    def forced_age_ms(self) -> int | None:
        """R4's A as it should be: the operator's value before the policy's."""
        if self.keep_ms is not None:
            return self.keep_ms
        return None if self.policy is None else self.policy.forced_age_ms


def wanted(topic: TopicState, demand: Demand) -> tuple[Maybe[int | None], WantedBy]:
    """Return how long data is wanted (None: without end), and who says so."""
    if demand.keep_ms is not None:
        return demand.keep_ms, "--want"
    if demand.forced_age_ms is not None:
        return demand.forced_age_ms, "policy"
    return retention_ms(topic), "retention.ms"


@or_unknown
def needed_ms(topic: TopicState, demand: Demand) -> int | None:
    """Return how long a record must be kept at least: as long as wanted, and until R1 may act (None: forever)."""
    keep = sure(wanted(topic, demand)[0])
    return demand.consumed_after_ms if keep is None else max(keep, demand.consumed_after_ms or 0)
