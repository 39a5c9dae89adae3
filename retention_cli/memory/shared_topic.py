"""What the shared ledger asks of the topic that all write to. Who speaks to brokers implements it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

STATE_TOPIC: Final = "_kretain_state"


class SharedTopicError(Exception):
    """The topic is not there, is not as it must be, or can't be read or written; the text says which."""


class Extent(NamedTuple):
    """The topic as it is now: its id, its first offset, and the one after its last."""

    topic_id: str
    start: int
    end: int


class Stored(NamedTuple):
    """A message of such a topic. A value of None deletes its key. ``time_ms`` is its stamp."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    time_ms: int

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        return f"{STATE_TOPIC}-{self.partition} offset {self.offset:,}"


class Placed(NamedTuple):
    """Where a message was put, and when by the brokers' clock."""

    offset: int
    broker_ms: int


class SharedTopic(Protocol):
    """The topic ``_kretain_state``, of one partition, compacted, and stamped by its brokers."""

    def check(self) -> None:
        """Make sure that what stands in it stays there, stamped by the brokers.

        Raises:
            SharedTopicError: not so.
        """
        ...

    def extent(self) -> Extent:
        """Return where it begins and ends now.

        Raises:
            SharedTopicError: it can't be told.
        """
        ...

    def read(self, start: int, end: int) -> Sequence[Stored]:
        """Return the messages of these offsets, in order.

        Raises:
            SharedTopicError: not all of them could be read.
        """
        ...

    def append(self, messages: Sequence[tuple[bytes, bytes | None]]) -> Sequence[Placed | SharedTopicError]:
        """Append messages (key and value), in order; return what became of each."""
        ...

    def connect(self) -> None:
        """Get ready to append, in the background."""
        ...

    def close(self) -> None:
        """Let go of the connections."""
        ...
