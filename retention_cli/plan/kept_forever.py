"""Name topics that brokers keep forever and that a pattern brings under a rule of age or size (G5). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from retention_cli.core.codes import Code
from retention_cli.core.model import INFINITE_MS, Reason, TopicFacts
from retention_cli.decide.guards import untouchable
from retention_cli.plan.remote_storage import some_of
from retention_cli.policy.model import Policy
from retention_cli.policy.settings import Settings


def reached_by_pattern(topics: Iterable[TopicFacts], settings: Mapping[str, Settings], policy: Policy) -> list[Reason]:
    """Return a note that names topics with ``retention.ms=-1`` that R4, R5 or R6 reaches through a pattern.

    Such a topic is often a database: schemas, a journal, a history of changes. It is not held.
    """
    by_disk = policy.disks.percent is not None
    names = []
    for topic in topics:
        chosen = settings[topic.name]
        limits = (chosen.forced_age_ms, chosen.max_bytes, chosen.max_topic_bytes)
        reached = (by_disk or limits != (None, None, None)) and not chosen.named_in_full
        if reached and topic.retention_ms == INFINITE_MS and untouchable(topic, chosen) is None:
            names.append(topic.name)
    if not names:
        return []
    text = (
        f"{some_of(names)}: retention.ms is -1 and only a pattern matches. Brokers keep these records "
        f"forever. To keep them, exclude the topic or set hold; otherwise name it in full"
    )
    return [Reason(Code.G5, text)]
