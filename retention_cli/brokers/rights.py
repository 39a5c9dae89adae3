"""What this user may do, and who may write to a topic."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, Literal, NamedTuple

import kafka.errors as kafka_errors
from kafka.protocol.admin import (
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    CreateTopicsRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
)
from kafka.protocol.metadata import MetadataRequest

from retention_cli.brokers.wire.connections import Wire, ask_each, error_named

_OPERATIONS: Final = {3: "READ", 4: "WRITE", 6: "DELETE", 8: "DESCRIBE", 11: "ALTER_CONFIGS", 10: "DESCRIBE_CONFIGS"}
_REFUSED: Final = (
    kafka_errors.TopicAuthorizationFailedError.errno,
    kafka_errors.ClusterAuthorizationFailedError.errno,
)


async def may_describe_cluster(wire: Wire, brokers: Iterable[int], deadline: float) -> bool:
    """Return whether this user's authorized operations on the cluster include DESCRIBE, by each of these brokers (F8).

    Each has its own list of super users, and learns of ACLs by itself.

    Raises:
        BrokerError: one of them has not answered until the deadline.
    """
    request = partial(DescribeClusterRequest, include_cluster_authorized_operations=True)
    replies = await ask_each(wire, brokers, request, deadline, "name this user's rights")
    return all(ACLOperation.DESCRIBE in (one.authorized_operations or ()) for one in replies)


async def topic_operations(wire: Wire, deadline: float) -> dict[str, frozenset[str]]:
    """Return, for each topic that this user may describe, the operations that the user is authorized for.

    Raises:
        BrokerError: no broker answered until the deadline.
    """
    response = await wire.ask_any(
        lambda: MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=True),
        deadline,
    )
    return {
        topic.name: frozenset(_OPERATIONS[code] for code in topic.authorized_operations or () if code in _OPERATIONS)
        for topic in response.topics
        if topic.error_code == 0
    }


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
            resource_type_filter=ACLResourceType.TOPIC,
            resource_name_filter=topic,
            pattern_type_filter=ACLResourcePatternType.MATCH,
            principal_filter=None,
            host_filter=None,
            operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
            min_version=1,
        ),
        deadline,
    )
    if response.error_code == kafka_errors.SecurityDisabledError.errno:
        return Writers(anybody=True)
    if (error := error_named(response.error_code)) is not None:
        raise error
    rules = [
        one
        for resource in response.resources
        for one in resource.acls
        if one.operation in (ACLOperation.ALL, ACLOperation.WRITE)
    ]
    allowed = {one.principal for one in rules if one.permission_type == ACLPermissionType.ALLOW}
    denied = {one.principal for one in rules if one.permission_type == ACLPermissionType.DENY and one.host == "*"}
    return Writers(tuple(sorted(allowed - denied)))


async def may_create(wire: Wire, topic: str, deadline: float) -> Literal["yes", "no", "there"]:
    """Return whether this user may create a topic, or ``there`` if it exists. Only validates: nothing is created.

    Raises:
        BrokerError: the request failed, or was answered with another error.
    """
    response = await wire.ask_any(
        lambda: CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
            ],
            timeout_ms=1000,
            validate_only=True,
            min_version=1,
        ),
        deadline,
    )
    if (code := response.topics[0].error_code) in _REFUSED:
        return "no"
    if code == kafka_errors.TopicAlreadyExistsError.errno:
        return "there"
    if (error := error_named(code, needs="CREATE")) is not None:
        raise error
    return "yes"
