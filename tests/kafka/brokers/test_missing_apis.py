"""A cluster that lacks an API, or its newer versions: each command works, or names what is missing."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, Self

import pytest

from kretain.embedded.node import free_ports
from tests.conftest import QUICK
from tests.support.clusters import EmbeddedKafka
from tests.support.plain import kept_alive
from tests.support.world import OLD, Cli, World, run_cli, written

API_VERSIONS: Final = 18
_UNSUPPORTED_VERSION: Final = 35
_ENTRY: Final = struct.Struct(">hhh")


class ApiProxy:
    """Listens on a port of its own. ``most`` has each API's highest version from now on, None: the API is gone."""

    def __init__(self) -> None:
        self.most: dict[int, int | None] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []

    def serve(self, broker_port: int) -> Self:
        threading.Thread(target=self._accept, args=(broker_port,), daemon=True).start()
        return self

    def close(self) -> None:
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, broker_port: int) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", broker_port))
            self._open += [client, broker]
            versions: dict[int, int] = {}
            for work in (self._requests, self._responses):
                threading.Thread(target=work, args=(client, broker, versions), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, versions: dict[int, int]) -> None:
        with closing(broker), suppress(OSError):
            while frame := _frame(client):
                key, version, correlation = struct.unpack_from(">hhi", frame)
                if key == API_VERSIONS:
                    versions[correlation] = version
                broker.sendall(struct.pack(">i", len(frame)) + frame)

    def _responses(self, client: socket.socket, broker: socket.socket, versions: dict[int, int]) -> None:
        with closing(client), suppress(OSError):
            while frame := _frame(broker):
                version = versions.pop(struct.unpack_from(">i", frame)[0], None)
                if version is not None:
                    frame = frame[:4] + limited(frame[4:], version, self.most)
                client.sendall(struct.pack(">i", len(frame)) + frame)


def _frame(source: socket.socket) -> bytes:
    """Return the next frame, empty at the end."""
    head = _exactly(source, 4)
    return _exactly(source, struct.unpack(">i", head)[0]) if head else b""


def _exactly(source: socket.socket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        some = source.recv(count - len(parts))
        if not some:
            return b""
        parts += some
    return parts


def limited(body: bytes, version: int, most: Mapping[int, int | None]) -> bytes:
    """Return an ApiVersions response's body without the APIs and versions that are taken out."""
    if struct.unpack_from(">h", body)[0] == _UNSUPPORTED_VERSION:  # in the layout of version 0
        return body
    flexible = version >= 3
    if flexible:
        count, at = _uvarint(body, 2)
        count -= 1
    else:
        count, at = struct.unpack_from(">i", body, 2)[0], 6
    kept = []
    for _ in range(count):
        key, low, high = _ENTRY.unpack_from(body, at)
        at += _ENTRY.size
        if flexible:
            tags, at = _uvarint(body, at)
            assert tags == 0
        cap = most.get(key, high)
        if cap is not None and cap >= low:
            kept.append(_ENTRY.pack(key, low, min(cap, high)) + (b"\0" if flexible else b""))
    size = _as_uvarint(len(kept) + 1) if flexible else struct.pack(">i", len(kept))
    return body[:2] + size + b"".join(kept) + body[at:]


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _as_uvarint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


APIS: dict[str, tuple[int, int | None]] = {
    "DeleteRecords": (21, None),
    "DescribeCluster": (60, None),
    "OffsetForLeaderEpoch": (23, None),
    "DescribeLogDirs": (35, None),
    "ListOffsets 6": (2, 6),
    "Metadata 9": (3, 9),
    "DescribeConfigs": (32, None),
    "ListGroups": (16, None),
    "DescribeGroups": (15, None),
    "OffsetFetch": (9, None),
    "FindCoordinator": (10, None),
}
WORKS = ("OffsetForLeaderEpoch", "DescribeLogDirs", "ListOffsets 6", "DescribeGroups")
"""A trim goes on without them, where nothing depends on what they would say."""


@pytest.fixture(scope="module")
def proxy() -> Iterator[ApiProxy]:
    one = ApiProxy()
    yield one
    one.close()


@pytest.fixture(scope="module")
def cluster(proxy: ApiProxy) -> Iterator[EmbeddedKafka]:
    (port,) = free_ports(1)
    settings = {**QUICK, "advertised.listeners": f"PLAIN://127.0.0.1:{port},SECURE://127.0.0.1:{proxy.port}"}
    with EmbeddedKafka(1, ports=[port], secure_protocol="PLAINTEXT", settings=settings) as kafka:
        proxy.serve(int(kafka.secure_bootstrap.rpartition(":")[2]))
        yield kafka


@pytest.fixture
def topic(proxy: ApiProxy, cluster: EmbeddedKafka, tmp_path: Path) -> str:
    """A topic of which a group has read all but one record."""
    proxy.most = {}
    return World(cluster.bootstrap, tmp_path / "unused").filled(OLD, {"all-but-one": 9})


def ask(proxy: ApiProxy, tmp_path: Path, *arguments: str) -> Cli:
    state = ("--state-dir", str(tmp_path / "state"))
    return run_cli(*arguments, "-b", f"127.0.0.1:{proxy.port}", "--timeout", "5s", *state)


@pytest.mark.parametrize("name", APIS)
def test_doctor_names_a_missing_api(proxy: ApiProxy, topic: str, tmp_path: Path, name: str) -> None:
    proxy.most = dict([APIS[name]])
    done = ask(proxy, tmp_path, "doctor", topic)
    assert name.partition(" ")[0] in done.out + done.err
    assert "internal" not in done.err


@pytest.mark.parametrize("name", WORKS)
def test_trim_works_without_an_api_that_it_can_do_without(
    proxy: ApiProxy, topic: str, tmp_path: Path, name: str
) -> None:
    proxy.most = dict([APIS[name]])
    done = ask(proxy, tmp_path, "trim", topic, "--consumed-after", "1h", "--yes", "-o", "json")
    assert done.code == 0, done.err
    assert [row["outcome"] for row in done.json()["partitions"]] == ["trimmed"]


def test_trim_without_deleterecords_fails_and_names_the_missing_api(
    proxy: ApiProxy, topic: str, tmp_path: Path
) -> None:
    proxy.most = dict([APIS["DeleteRecords"]])
    rehearsed = ask(proxy, tmp_path, "trim", topic, "--consumed-after", "1h", "--dry-run", "-o", "json")
    assert rehearsed.json()["partitions"][0]["outcome"] == "would-trim"
    done = ask(proxy, tmp_path, "trim", topic, "--consumed-after", "1h", "--yes")
    assert (done.code, done.out) == (1, "")
    assert done.err == "kretain: this cluster does not offer DeleteRecords: nothing can be trimmed\n"
    assert "unverified" not in ask(proxy, tmp_path, "history", "-o", "json").out


@pytest.mark.parametrize(
    ("protocol", "key", "name"),
    [("classic", 15, "DescribeGroups"), ("consumer", 69, "ConsumerGroupDescribe")],
    ids=["classic", "consumer"],
)
def test_group_with_members_that_cannot_be_described_holds(
    proxy: ApiProxy, cluster: EmbeddedKafka, topic: str, tmp_path: Path, protocol: str, key: int, name: str
) -> None:
    """F3: what its members read without a commit is unknown."""
    world = World(cluster.bootstrap, tmp_path / "unused")
    proxy.most = {key: None}
    with kept_alive(world.member(f"{topic}-{protocol}", [topic], group_protocol=protocol)):
        done = ask(proxy, tmp_path, "plan", topic, "--consumed-after", "1h", "-o", "json")
    (row,) = done.json()["partitions"]
    assert row["action"] == "hold"
    assert f"does not offer {name}" in " ".join(reason["text"] for reason in row["reasons"]), row["reasons"]


GROUPS = ("DescribeCluster", "ListGroups", "FindCoordinator", "OffsetFetch")
USES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("explain", "TOPIC", "--consumed-after", "1h"): ("ListOffsets", "DescribeConfigs", *GROUPS),
    ("plan", "TOPIC", "--older-than", "1h"): ("ListOffsets", "DescribeConfigs", "DescribeLogDirs", *GROUPS),
    ("offsets", "TOPIC"): ("ListOffsets", *GROUPS),
    ("groups",): ("ListOffsets", *GROUPS),
    ("profile", "TOPIC"): ("ListOffsets", "Fetch", "Produce"),
    ("advise", "TOPIC"): ("ListOffsets", "DescribeConfigs", "DescribeLogDirs"),
    ("disk",): ("DescribeLogDirs",),
    ("forecast", "-p", "POLICY"): ("ListOffsets", "DescribeLogDirs"),
    ("policy", "check", "-p", "POLICY"): ("DescribeConfigs",),
    ("policy", "list", "-p", "LIVE"): ("ListOffsets", "Fetch", "Produce"),
    ("policy", "set", "TOPIC", "log.retention.min.timestamp=1", "-p", "LIVE"): (
        *("ListOffsets", "Fetch", "Produce", "InitProducerId"),
    ),
    ("cluster", "init", "--yes"): ("DescribeConfigs",),
    ("watch", "-p", "READ", "--trim", "--listen", "off", "--deadline", "3s"): (
        *("ListOffsets", "DescribeConfigs", "DescribeLogDirs", *GROUPS),
    ),
}
"""What each command names if it is missing; without all the other APIs together it works."""
KEYS = {
    **{name: key for name, (key, most) in APIS.items() if most is None},
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "CreateTopics": 19,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
    "DescribeAcls": 29,
    "DeleteGroups": 42,
    "DescribeProducers": 61,
    "DescribeTransactions": 65,
    "ListTransactions": 66,
    "ConsumerGroupDescribe": 69,
}
BESIDE = {"forecast": {"DescribeConfigs", *GROUPS}, "watch": {"DeleteRecords"}}
"""What else a command names when it is missing."""


@pytest.mark.parametrize("command", USES, ids=lambda one: " ".join(one[:2]))
def test_command_names_each_api_that_it_uses_and_works_without_the_others(
    proxy: ApiProxy, cluster: EmbeddedKafka, topic: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    run_cli("cluster", "init", "--yes", "-b", cluster.bootstrap, check=0)
    read = "retention.commitoffset.enable: true, retention.commitoffset.ms: 1h"
    texts = {
        "READ": read,
        "POLICY": "retention.ms: 1d",
        "LIVE": "log.retention.min.timestamp: cluster, unconsumed: trim",
    }
    words = {"TOPIC": topic}
    for name, rules in texts.items():
        path = written(tmp_path / f"{name}.yaml", f'version: 1\ntopics:\n  - {{match: "{topic}", {rules}}}\n')
        words[name] = str(path)
    line = [words.get(word, word) for word in command]
    used = USES[command]
    others = KEYS.keys() - {*used, *BESIDE.get(command[0], ())}
    proxy.most = dict.fromkeys(KEYS[name] for name in others)
    done = ask(proxy, tmp_path, *line)
    assert done.code == 0, done.err
    assert "does not offer" not in done.out + done.err
    for name in used:
        proxy.most = {KEYS[name]: None}
        done = ask(proxy, tmp_path, *line)
        assert re.search(rf"does not offer [\w, ]*{name}\b", done.out + done.err), (name, done)
        assert "Traceback" not in done.err
    proxy.most = {3: 9}
    done = ask(proxy, tmp_path, *line)
    assert done.code == (0 if command[0] == "watch" else 1)  # watch tries again
    assert "the broker does not offer Metadata in a version that fits" in done.err


def test_restore_is_refused_before_it_begins_where_transactions_are_missing(
    proxy: ApiProxy, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "archive").mkdir()
    proxy.most = {24: None, 26: None}
    done = ask(proxy, tmp_path, "restore", topic, "--from", str(tmp_path / "archive"), "--to", topic, "--yes")
    assert (done.code, done.out) == (1, "")
    assert "this cluster does not offer AddPartitionsToTxn, EndTxn: nothing can be restored" in done.err
