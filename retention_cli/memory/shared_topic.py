"""The interface of the topic that the shared ledger reads and writes; the code that talks to brokers implements it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

STATE_TOPIC: Final = "_kretain_state"


class SharedTopicError(Exception):
    """The topic does not exist, is not as required, or can't be read or written; the text says which."""


class Extent(NamedTuple):
    """The topic's current id, first offset, and end offset (exclusive)."""

    topic_id: str
    start: int
    end: int


class Stored(NamedTuple):
    """A message. A value of None deletes its key. ``time_ms`` is its timestamp (Unix ms)."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    time_ms: int

    @property
    def place(self) -> str:
        """Its partition and offset, for display."""
        return f"{STATE_TOPIC}-{self.partition} offset {self.offset:,}"


class Placed(NamedTuple):
    """The offset of an appended message, and its time by the brokers' clock (Unix ms)."""

    offset: int
    broker_ms: int


class SharedTopic(Protocol):
    """The topic ``_kretain_state``, of one partition, compacted, and stamped by its brokers."""

    def check(self) -> None:
        """Check that the topic keeps its messages, and that brokers stamp them.

        Raises:
            SharedTopicError: it does not, or they don't.
        """
        ...

    def extent(self) -> Extent:
        """Return where the topic begins and ends now.

        Raises:
            SharedTopicError: it can't be read.
        """
        ...

    def read(self, start: int, end: int) -> Sequence[Stored]:
        """Return the messages of these offsets, in order.

        Raises:
            SharedTopicError: not all of them could be read.
        """
        ...

    def append(self, messages: Sequence[tuple[bytes, bytes | None]]) -> Sequence[Placed | SharedTopicError]:
        """Append messages (key and value), in order; return the place of each, or its error."""
        ...

    def connect(self) -> None:
        """Connect in the background, to append later."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...
