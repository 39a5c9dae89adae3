"""Read the positions of old consumers in ZooKeeper (F7; the first source document names them along with new ones).

The layout is that of Kafka's own clients up to 1.1. ``/consumers/GROUP/offsets/TOPIC/PARTITION`` holds, in decimal, the
offset of the next record to read; ``…/owners/TOPIC/PARTITION`` exists while a member reads that partition, and the JSON
of ``…/ids/MEMBER`` has a live member's subscription.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from retention_cli.core.extras import how_to_add
from retention_cli.core.files import read_file
from retention_cli.core.grouping import in_batches
from retention_cli.core.printable import plain, shown
from retention_cli.observe.floors.sources.interface import (
    MAX_OFFSET,
    MAX_PARTITION,
    Consumer,
    Consumers,
    Position,
    Reach,
    SourceError,
)
from retention_cli.policy.model import matches
from retention_cli.policy.settings import FloorSource

_ROOT: Final = "/consumers"
_OFFSET: Final = re.compile(rb"[0-9]{1,19}")
_AT_ONCE: Final = 500
_QUIET: Final = logging.getLogger("kretain.zookeeper")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


def read(source: FloorSource, _reach: Reach) -> Consumers:
    """Return the consumers of all matching groups, by group.

    Args:
        source: ``place`` is ``host:port,…/chroot``; ``auth_file`` a file with ``user:password`` (digest).
        _reach: unused, as positions in ZooKeeper are current.

    Raises:
        SourceError: ZooKeeper can't be reached or read, the session was lost, or there are no consumers at all.
    """
    try:
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
        from kazoo.handlers.threading import KazooTimeoutError
    except ImportError as error:
        raise SourceError(f"ZooKeeper needs kazoo: {how_to_add('zookeeper')} ({error})") from None
    timeout_s = source.timeout_ms / 1000
    deadline = time.monotonic() + timeout_s
    auth = [("digest", _secret(Path(source.auth_file)))] if source.auth_file else None
    client = KazooClient(source.place, timeout=timeout_s, auth_data=auth, read_only=False, logger=_QUIET)
    lost: list[str] = []
    client.add_listener(lambda state: lost.append(state) if state != "CONNECTED" else None)
    try:
        client.start(timeout_s)
        found = _Tree(client, deadline, NoNodeError).consumers(source)
    except KazooTimeoutError:
        raise SourceError(f"it did not answer within {timeout_s:g} s") from None
    except NoAuthError:
        raise SourceError("this user may not read /consumers: give a file with user:password under auth.file") from None
    except KazooException as error:
        raise SourceError(f"reading failed ({type(error).__name__})") from None
    else:
        if lost:
            raise SourceError("the session was lost while it was read: run again")
        return found
    finally:
        with contextlib.suppress(Exception):
            client.stop()
            client.close()


def _secret(path: Path) -> str:
    try:
        text = read_file(path, pipes=True).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"auth.file {path} can't be read: {getattr(error, 'strerror', None) or 'not text'}") from None
    if ":" not in text or "\n" in text:
        raise SourceError(f"auth.file {path} does not hold one line, user:password")
    return text


@dataclass(frozen=True, slots=True)
class _Tree:
    """Reads the nodes below ``/consumers``, many at a time. A node that is deleted meanwhile counts as absent."""

    client: Any
    deadline: float
    gone: type[Exception]

    def consumers(self, source: FloorSource) -> dict[str, Consumer]:
        """Return the groups that match, with what could be read of each."""
        self.client.sync(_ROOT)  # this server may lag behind what was written
        try:
            names = self.client.get_children(_ROOT)
        except self.gone:
            raise SourceError("there is no /consumers: is the chroot right?") from None
        groups = [name for name in names if matches(source.groups, name) and not matches(source.ignored, name)]
        if not groups:
            raise SourceError("no group under /consumers counts: are the chroot and groups right?")
        topics = self._below(f"{_ROOT}/{group}/offsets" for group in groups)
        reads = self._reads(groups)
        partitions = self._below(f"{path}/{topic}" for path, some in topics.items() for topic in some)
        values = self._contents(f"{path}/{partition}" for path, some in partitions.items() for partition in some)
        found = {}
        for group in groups:
            positions: dict[str, list[Position]] = {}
            unreadable: dict[str, str] = {}
            for topic in topics[f"{_ROOT}/{group}/offsets"]:
                path = f"{_ROOT}/{group}/offsets/{topic}"
                try:
                    rows = [_position(one, values[f"{path}/{one}"]) for one in partitions[path]]
                except ValueError as error:
                    unreadable[topic] = f"{path}: {error}"
                else:
                    positions[topic] = sorted(row for row in rows if row is not None)
            found[group] = Consumer(positions, reads[group], unreadable)
        return found

    def _reads(self, groups: Sequence[str]) -> dict[str, frozenset[str] | None]:
        owners = self._below(f"{_ROOT}/{group}/owners" for group in groups)
        partitions = self._below(f"{path}/{topic}" for path, some in owners.items() for topic in some)
        members = self._below(f"{_ROOT}/{group}/ids" for group in groups)
        values = self._contents(f"{path}/{member}" for path, some in members.items() for member in some)
        found: dict[str, frozenset[str] | None] = {}
        for group in groups:
            path = f"{_ROOT}/{group}/owners"
            ever_owned = frozenset(owners[path])  # a topic's node stays when no member owns a partition
            owned = {topic for topic in ever_owned if partitions[f"{path}/{topic}"]}
            nodes = [values[f"{_ROOT}/{group}/ids/{member}"] for member in members[f"{_ROOT}/{group}/ids"]]
            subscribed = [_subscription(node[0]) for node in nodes if node is not None]
            named = frozenset[str]().union(*(one for one in subscribed if one is not None))
            # What a pattern matches is known once those who have one own something: a topic that no one else names.
            found[group] = ever_owned | named if None not in subscribed or owned - named else None
        return found

    def _below(self, paths: Iterable[str]) -> dict[str, list[str]]:
        return self._all(paths, self.client.get_children_async, [])

    def _contents(self, paths: Iterable[str]) -> dict[str, tuple[bytes, Any] | None]:
        return self._all(paths, self.client.get_async, None)

    def _all(self, paths: Iterable[str], ask: Callable[[str], Any], none: Any) -> dict[str, Any]:
        """Return the answer for each path, ``none`` for one that does not exist."""
        found: dict[str, Any] = {}
        for some in in_batches(paths, _AT_ONCE):
            answers = [(path, ask(path)) for path in some]
            for path, answer in answers:
                try:
                    found[path] = answer.get(timeout=max(0.0, self.deadline - time.monotonic()))
                except self.gone:
                    found[path] = none
        return found


def _subscription(content: bytes | None) -> frozenset[str] | None:
    try:
        data = json.loads(content or b"")
        static, topics = data.get("pattern", "static") == "static", data["subscription"].keys()
    except (ValueError, KeyError, AttributeError, RecursionError):
        return None
    return frozenset(topics) if static else None


def _position(partition: str, node: tuple[bytes, Any] | None) -> Position | None:
    """Return a node's position, None if it was deleted.

    Raises:
        ValueError: its name is not a partition, or it does not hold an offset.
    """
    if node is None:
        return None
    if re.fullmatch(r"0|[1-9][0-9]{0,9}", partition) is None or int(partition) > MAX_PARTITION:
        raise ValueError(f"{plain(partition)} is not a partition")
    value = node[0]
    if _OFFSET.fullmatch(value or b"") is None or int(value) > MAX_OFFSET:
        raise ValueError(f"partition {partition} holds {shown((value or b'').decode(errors='replace'))}, not an offset")
    return int(partition), int(value)
