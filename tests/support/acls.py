"""Rights that tests give to users."""

from __future__ import annotations

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.support.world import World


def allow(
    world: World,
    user: str,
    kind: ResourceType,
    name: str,
    *operations: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> None:
    """Give a user rights, or take them away (``permission``)."""
    wanted = [AclBinding(kind, name, pattern, f"User:{user}", "*", one, permission) for one in operations]
    for future in world.admin.create_acls(wanted).values():
        future.result(60)
