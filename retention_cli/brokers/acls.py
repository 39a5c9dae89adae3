"""The principals that may write to a topic according to ACLs (DescribeAcls)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafka.protocol.admin import DescribeAclsRequest

from retention_cli.brokers.wire.connections import Wire, error_named

_TOPIC: Final = 2
_MATCH: Final = 2
_ANY: Final = 1
_WRITES: Final = (2, 4)
"""ALL and WRITE."""
_DENY: Final = 2
_ALLOW: Final = 3
_SECURITY_DISABLED: Final = 54


class Writers(NamedTuple):
    """Principals whose ACLs let them write to a topic. ``anybody``: the brokers have no authorizer.

    Super users are not included, as brokers don't list them.
    """

    principals: tuple[str, ...] = ()
    anybody: bool = False


async def writers(wire: Wire, topic: str, deadline: float) -> Writers:
    """Return the principals that may write to a topic by literal, prefixed and wildcard ACLs.

    A principal that is denied on all hosts is left out.

    Raises:
        BrokerError: the request failed. It needs DESCRIBE on the cluster.
    """
    response = await wire.ask_any(
        lambda: DescribeAclsRequest(
            resource_type_filter=_TOPIC,
            resource_name_filter=topic,
            pattern_type_filter=_MATCH,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
            min_version=1,
        ),
        deadline,
    )
    if response.error_code == _SECURITY_DISABLED:
        return Writers(anybody=True)
    if (error := error_named(response.error_code)) is not None:
        raise error
    rules = [one for resource in response.resources for one in resource.acls if one.operation in _WRITES]
    allowed = {one.principal for one in rules if one.permission_type == _ALLOW}
    return Writers(tuple(sorted(allowed - {one.principal for one in rules if _denied_everywhere(one)})))


def _denied_everywhere(rule: Any) -> bool:
    return bool(rule.permission_type == _DENY and rule.host == "*")
