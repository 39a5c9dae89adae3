"""What kretain did to settings: on the cluster, in ``_kretain_protected``, and a copy in the ledger (P5).

A message a setting: key ``TOPIC/SETTING``, value a :class:`Record` as JSON. The topic counts; the ledger's copy is for
a topic that was lost.

No append has a condition, so the readers apply one: a message counts only if it names the message that counted before
it. All of them agree on which do, no matter who wrote last and how much of the topic is compacted by then.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from pydantic import TypeAdapter

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.reader import WRITE, ClusterReader
from retention_cli.brokers.writer import ClusterWriter
from retention_cli.core.model import TopicPartition
from retention_cli.memory.ledger import Ledger
from retention_cli.protect.decision import SETTINGS, Record, Setting
from retention_cli.state.own_topics import PROTECTED_TOPIC, extent_of, read_stored, wrong_settings

Records = dict[tuple[str, Setting], Record]
_RECORD: Final = TypeAdapter(Record)
_VALUE: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_TURN_MS: Final = 60_000
"""For this long, by the brokers' clocks, only the run that began a change may continue it: its request may be open."""
SENT_S: Final = 10.0
"""After so long a run sends its request no more. A broker may take 30 s to pass it on to the controller."""


def parsed(key: str, value: bytes | str) -> Record:
    """Return a record, ``unreadable`` if it is not a valid one of that key."""
    with suppress(ValueError, RecursionError):
        record = _RECORD.validate_json(value, strict=True)
        values = {record.original, record.value, record.before} - {None}
        if record.key == key and all(_VALUE.fullmatch(str(one)) for one in values):
            return record
    topic, _, setting = key.rpartition("/")
    return Record(topic, "", setting, "unreadable", None, None, None, None, "", 0, "")  # type: ignore[arg-type]


class _Message(NamedTuple):
    """A message about a setting: its offset, the broker's time, and what it says."""

    offset: int
    time_ms: int
    record: Record

    @property
    def place(self) -> int:
        """The offset by which others name it: its own, or that of the message that was put back."""
        return self.offset if self.record.again is None else self.record.again

    def goes_on_from(self, other: _Message, last: _Message) -> bool:
        """Return whether it counts after the one that counts so far, and the last one so far (P5)."""
        if self.record.again is not None:  # the kretain that put it back had read all before it
            return self.record.after == last.offset
        if self.record.state == "unreadable":
            return True
        late = self.time_ms >= other.time_ms + _TURN_MS
        free = other.record.state != "changing" or other.record.run == self.record.run
        return self.record.after == other.place and (free or late)

    def says(self, other: _Message) -> bool:
        """Return whether both say the same, perhaps after different messages."""
        return replace(self.record, after=other.record.after, again=other.record.again) == other.record


@dataclass(slots=True)
class RaisedSettings:
    """The records of one cluster, to read, and to add to before and after each change.

    Args:
        reader: the cluster.
        ledger: this machine's copy.
    """

    _reader: ClusterReader
    _ledger: Ledger
    _log: str = ""
    _start: int = 0
    _counts: dict[str, _Message] = field(default_factory=dict)
    _last: dict[str, _Message] = field(default_factory=dict)
    _known: dict[str, int] = field(default_factory=dict)

    def read(self) -> Records:
        """Return the record of each setting that counts.

        Raises:
            BrokerError: the topic does not exist, or can't be read.
            StateError: the ledger can't be read.
        """
        copies = self._ledger.raised() if self._ledger.on_disk else {}
        self._read_on()
        self._known = {key: one.place for key, one in self._counts.items()}
        found = {text: parsed(text, value) for text, value in copies.items()}
        found |= {text: one.record for text, one in self._counts.items()}
        return {(one.topic, one.setting): one for one in found.values() if one.setting in SETTINGS}

    @property
    def overtaken(self) -> list[str]:
        """The keys whose last message does not count. Compaction would keep that one alone."""
        return [key for key, one in self._last.items() if not one.says(self._counts[key])]

    def put_back(self, writer: ClusterWriter) -> None:
        """Append what counts where it is not the last message.

        Raises:
            BrokerError: it could not be written.
        """
        if self.overtaken:
            self._read_on()
        for key in self.overtaken:
            one = self._counts[key]
            again = replace(one.record, after=self._last[key].offset, again=one.place)
            writer.append(PROTECTED_TOPIC, key.encode(), _RECORD.dump_json(again))

    def write(self, writer: ClusterWriter, record: Record) -> None:
        """Append a record that continues the one that :meth:`read` returned, or this run's last.

        Raises:
            RequestFailedError: another kretain's does already, or its change may be under way: this record does not
                count.
            BrokerError, StateError: it could not be written, to the cluster or to the ledger.
        """
        key = record.key
        text = _RECORD.dump_json(replace(record, after=self._known.get(key), again=None))
        _, at, broker_ms = writer.append(PROTECTED_TOPIC, key.encode(), text)
        if broker_ms is None:  # its settings can't be read, or were changed since
            why = f"brokers don't stamp {PROTECTED_TOPIC} (message.timestamp.type): kretain can't tell whose turn it is"
            raise RequestFailedError(why, retriable=False)
        if at not in self._read_on():
            why = f"what was written to {PROTECTED_TOPIC} can't be read: the topic was recreated"
            raise RequestFailedError(why, retriable=True)
        if self._counts[key].place != at:
            self.put_back(writer)
            what = f"{record.setting} of topic {record.topic} now, or was a minute ago"
            raise RequestFailedError(f"another kretain is changing {what}: the next pass checks again", retriable=True)
        self._known[key] = at
        if self._ledger.on_disk:
            self._ledger.note_raised(key, text.decode())

    def _read_on(self) -> set[int]:
        """Read the messages since the last time; return their offsets."""
        log, there = extent_of(self._reader, PROTECTED_TOPIC)
        if log != self._log:  # recreated, or maybe cut by an election: what was read before may be gone
            self._log, self._start, self._counts, self._last = log, 0, {}, {}
        new = there._replace(start=max(self._start, there.start))
        messages = read_stored(self._reader, {TopicPartition(PROTECTED_TOPIC, 0): new})
        self._start = there.end
        for one in messages:
            if one.key is not None and one.value is not None:
                key = one.key.decode("utf-8", "replace")
                message = _Message(one.offset, one.time_ms, parsed(key, one.value))
                if key not in self._counts or message.goes_on_from(self._counts[key], self._last[key]):
                    self._counts[key] = message
                self._last[key] = message
        return {one.offset for one in messages}


def check_writable(reader: ClusterReader) -> None:
    """Check that records can be written, and stay.

    Raises:
        MissingApiError: the cluster does not offer what that needs.
        BrokerError: the topic deletes its records, or whether it does can't be read.
    """
    reader.check_offers(WRITE, "no setting can be changed, because kretain could not record it")
    if (problem := wrong_settings(reader, PROTECTED_TOPIC, "no setting can be changed: ")) is not None:
        raise BrokerError(f"no setting can be changed, because the record would be lost: {problem}")
