"""What a consumer is called: a Kafka group by its id, one outside Kafka's groups by its source and name (F7). Pure.

In folds, rows and the ledger each consumer has one key. A group's is its id; another's begins with a character that no
honest group id has, so that a group called ``file:flink`` is not the file source of that name.
"""

from __future__ import annotations

from typing import Final

from retention_cli.core.commands import kretain
from retention_cli.core.model import Code, Reason
from retention_cli.core.printable import name_in_text

_SHARE: Final = "share"
OUTSIDE: Final = "\x01"
"""How the key of a consumer outside Kafka's groups begins."""
NO_GROUP: Final = Reason(Code.F4, "no consumer group has committed here, so what was read is unknown")


def key_of(kind: str, name: str) -> str:
    """Return the key of a consumer outside Kafka's groups, such as ``file`` and ``flink``."""
    return f"{OUTSIDE}{kind}:{name}"


def group_key(kind: str, name: str) -> str:
    """Return the key of a listed group: a share group's is not that of another group with its id (F1)."""
    return key_of(_SHARE, name) if kind == _SHARE else name


def group_id(key: str) -> str | None:
    """Return the id of a Kafka group of any kind; None for a consumer outside Kafka's groups."""
    if is_share(key):
        return key.removeprefix(key_of(_SHARE, ""))
    return None if is_outside(key) else key


def is_share(key: str) -> bool:
    """Return whether a key is that of a share group."""
    return key.startswith(key_of(_SHARE, ""))


def is_outside(key: str) -> bool:
    """Return whether a key is not of a group that commits: a share group's, or one outside Kafka's groups (F7)."""
    return key.startswith(OUTSIDE)


def outlives_topics(key: str) -> bool:
    """Return whether a consumer's positions stay where they are when their topic is deleted: no broker clears them."""
    return is_outside(key) and not is_share(key)


def plain_name(key: str) -> str:
    """Return what people call it in lists: a group's id, or ``file:flink``."""
    return key.removeprefix(OUTSIDE)


def floor_by(key: str) -> str:
    """Return how a plan names what sets a floor: ``group:billing``, or ``file:flink``."""
    return plain_name(key) if is_outside(key) else f"group:{key}"


def who(key: str) -> str:
    """Return how a sentence names it: ``group billing``, or ``file:flink``."""
    return plain_name(key) if is_outside(key) else f"group {name_in_text(key)}"


def forget_line(key: str) -> str:
    """Return the command that forgets a consumer."""
    return kretain("groups", "forget", names=(plain_name(key),))


def forget_hint(key: str) -> str:
    """Return how to make a consumer that is gone count no longer (F6)."""
    return f"if it won't come back: {forget_line(key)}"
