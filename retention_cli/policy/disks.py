"""Find what a policy asks of disks, sizes and segments, and refuse it where it can't apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from retention_cli.policy.model import Policy
from retention_cli.policy.settings import Settings

_OF_DISKS: Final = frozenset({"retention.bytes", "retention.topic.bytes", "granularity"})


def needs_disks(policy: Policy) -> bool:
    """Return whether any rule of this run needs disks, sizes or segments."""
    rules = policy.disks
    return rules.percent is not None or bool(rules.watermarks) or bool(_OF_DISKS & policy.keys_in_use)


def sized_topics(settings: Mapping[str, Settings]) -> set[str]:
    """Return the topics that have a size for R5."""
    return {name for name, one in settings.items() if one.max_bytes is not None or one.max_topic_bytes is not None}
