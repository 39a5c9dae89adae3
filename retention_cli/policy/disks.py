"""What of a policy speaks of disks, sizes or segments; and who refuses that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from retention_cli.policy.errors import PolicyError, PolicyProblem
from retention_cli.policy.model import Policy
from retention_cli.policy.settings import Settings

_OF_DISKS: Final = frozenset({"retention.bytes", "retention.topic.bytes", "granularity"})


def needs_disks(policy: Policy) -> bool:
    """Return whether any rule of this run speaks of disks, sizes or segments."""
    rules = policy.disks
    return rules.percent is not None or bool(rules.watermarks) or bool(_OF_DISKS & policy.keys_in_use)


def check_without_inventory(policy: Policy) -> None:
    """Refuse, of several clusters, a policy that names an inventory: it is of one.

    Raises:
        PolicyError: it does.
    """
    if policy.disks.inventory:
        text = "is for one cluster: name it with --cluster NAME"
        raise PolicyError([PolicyProblem(policy.source, None, "disks.inventory", text)])


def sized_topics(settings: Mapping[str, Settings]) -> set[str]:
    """Return the topics that R5 has a size for."""
    return {name for name, one in settings.items() if one.max_bytes is not None or one.max_topic_bytes is not None}
