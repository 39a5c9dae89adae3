"""The retention that is wanted for a topic: the operator's, else the policy's, else the broker's own. Pure."""

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
    """What the operator and the policy want, each None if not given.

    ``keep_ms`` is how long data should be kept, ``topic_bytes`` how large the topic may become (one replica of each
    partition).
    ``least_segment_ms`` is the smallest ``segment.ms`` that may be advised: managed clusters often require a day.
    ``policy`` is the topic's policy, None if it has none.
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
        """R4's A: the operator's value, else the policy's, else None."""
        if self.keep_ms is not None:
            return self.keep_ms
        return None if self.policy is None else self.policy.forced_age_ms


def wanted(topic: TopicState, demand: Demand) -> tuple[Maybe[int | None], WantedBy]:
    """Return how long data should be kept (None: forever), and which source that comes from."""
    if demand.keep_ms is not None:
        return demand.keep_ms, "--want"
    if demand.forced_age_ms is not None:
        return demand.forced_age_ms, "policy"
    return retention_ms(topic), "retention.ms"


@or_unknown
def needed_ms(topic: TopicState, demand: Demand) -> int | None:
    """Return how long size limits must keep a record: as long as wanted, and until R1 may act (None: no minimum)."""
    keep = sure(wanted(topic, demand)[0])
    return demand.consumed_after_ms if keep is None else max(keep, demand.consumed_after_ms or 0)
