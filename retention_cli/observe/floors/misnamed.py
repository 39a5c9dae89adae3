"""Find groups that a policy names and a cluster lacks."""

from __future__ import annotations

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.memory.ledger import Ledger
from retention_cli.policy.model import Policy
from retention_cli.policy.suggestions import groups_not_there, names_groups


def misnamed_groups(policy: Policy, reader: ClusterReader, memory: Ledger, now_ms: int) -> list[str]:
    """Return notes on names of groups that are not there, each with the near one.

    There is none where the policy names no groups, and where not every group can be listed (F8). A group that is
    remembered counts (F6), so its name is no mistake.
    """
    if not names_groups(policy):
        return []
    try:
        if not reader.may_describe_cluster():
            return []
        listed = {group.name for group in reader.list_groups(reader.brokers())}
    except BrokerError:
        return []
    gone = {name for name, _seen_ms, _rows in memory.gone_groups(listed, now_ms - policy.groups.remember_ms)}
    return groups_not_there(policy, listed | gone)
