"""What kretain did to settings: on the cluster, in ``_kretain_protected``, and a copy in the ledger (P5).

A message a setting: key ``TOPIC/SETTING``, value a :class:`Record` as JSON. The topic counts; the ledger's copy is for
a topic that was lost.
"""

from __future__ import annotations

import re
from typing import Final

from pydantic import TypeAdapter

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.reader import WRITE, ClusterReader
from retention_cli.brokers.writer import ClusterWriter
from retention_cli.core.model import Unknown
from retention_cli.memory.ledger import Ledger
from retention_cli.protect.value import SETTINGS, Record, Setting
from retention_cli.state.own_topics import PROTECTED_TOPIC, Stored, look_at, read_stored, wrong_settings

Records = dict[tuple[str, Setting], Record | Unknown]
_RECORD: Final = TypeAdapter(Record)
_VALUE: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)


class MovedError(BrokerError):
    """Another kretain is changing the same setting."""


def parsed(key: str, value: bytes | str) -> Record | Unknown:
    """Return a record, unknown if it is not a valid one of that key."""
    try:
        record = _RECORD.validate_json(value, strict=True)
        values = (record.original, record.value, record.before)
        valid = record.key == key and all(one is None or _VALUE.fullmatch(one) for one in values)
    except (ValueError, RecursionError):
        valid = False
    if valid:
        return record
    text = f"what {PROTECTED_TOPIC} says of {key} can't be read: kretain leaves it alone until kretain protect --resume"
    return Unknown.because("protect", text)


class RaisedSettings:
    """The records of one cluster, to read, and to add to before and after each change.

    Args:
        reader: the cluster.
        ledger: this machine's copy.
    """

    def __init__(self, reader: ClusterReader, ledger: Ledger) -> None:
        self._reader = reader
        self._ledger = ledger
        self._start = 0  # what lies behind was not there when the records were read
        self._ours: set[int] = set()

    def read(self) -> Records:
        """Return the last record of each setting.

        Raises:
            BrokerError: the topic does not exist, or can't be read.
            StateError: the ledger can't be read.
        """
        found: Records = {}
        for text, value in self._ledger.raised().items() if self._ledger.on_disk else ():
            _add(found, text, value)
        self._start = 0
        messages, self._start = self._messages()
        for one in messages:
            if one.key is not None and one.value is not None:
                _add(found, one.key.decode("utf-8", "replace"), one.value)
        return found

    def write(self, writer: ClusterWriter, record: Record, *, made: bool = False) -> None:
        """Append a record, unless another kretain has written about the same setting since they were read.

        ``made``: the change was made and read back, so this record stays the last word.

        Raises:
            MovedError: it has. Its record is the last one.
            BrokerError, StateError: it could not be written, to the cluster or to the ledger.
        """
        text = _RECORD.dump_json(record)
        key = record.key.encode()
        at = writer.append(PROTECTED_TOPIC, key, text).offset
        self._ours.add(at)
        messages, _end = self._messages()
        if all(one.offset != at for one in messages):
            why = "an open transaction hides it, or the topic was made again"
            raise RequestFailedError(f"what was written to {PROTECTED_TOPIC} can't be read: {why}", retriable=True)
        others = [one for one in messages if one.key == key and one.offset not in self._ours]
        if others and not made:
            if others[-1].offset < at:  # that one came first: it is put back as the last word
                writer.append(PROTECTED_TOPIC, key, others[-1].value)
            raise MovedError(f"another kretain is changing {record.setting} of topic {record.topic} now")
        if self._ledger.on_disk:
            self._ledger.note_raised(record.key, text.decode())

    def _messages(self) -> tuple[list[Stored], int]:
        """Return the messages since the records were read, and where they end."""
        _, ranges = look_at(self._reader, PROTECTED_TOPIC)
        if len(ranges) != 1:
            raise RequestFailedError(f"topic {PROTECTED_TOPIC} must have one partition", retriable=False)
        ((tp, span),) = ranges.items()
        return read_stored(self._reader, {tp: span._replace(start=max(self._start, span.start))}), span.end


def check_writable(reader: ClusterReader) -> None:
    """Check that records can be written, and stay: settings that may not be read don't matter.

    Raises:
        MissingApiError: the cluster does not offer what that needs.
        BrokerError: the topic deletes its records.
    """
    reader.check_offers(WRITE, "no setting can be changed, as that could not be remembered")
    config = reader.topic_configs([PROTECTED_TOPIC])[PROTECTED_TOPIC]
    if not isinstance(config, RequestFailedError) and (problem := wrong_settings(PROTECTED_TOPIC, config)) is not None:
        raise BrokerError(f"no setting can be changed, as that would be forgotten: {problem}")


def _add(found: Records, key: str, value: bytes | str) -> None:
    topic, _, setting = key.rpartition("/")
    for known in SETTINGS:
        if setting == known:
            found[topic, known] = parsed(key, value)
