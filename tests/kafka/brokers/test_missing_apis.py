"""Brokers that lack an API or its newer versions, are reached elsewhere, say little, or are none."""

from __future__ import annotations

import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import pytest
from kafka.protocol.metadata import ApiVersionsResponse

from kretain.embedded.cluster import free_ports
from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from tests.conftest import QUICK
from tests.support.clusters import EmbeddedKafka
from tests.support.doors import Door
from tests.support.plain import kept_alive
from tests.support.says import refuses
from tests.support.world import OLD, Cli, World, reader_for, run_cli, written

_UNSUPPORTED_VERSION: Final = 35


class ApiProxy(Door):
    """A broker by another address. ``most`` has each API's highest version from now on, None: the API is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.most: dict[int, int | None] = {}

    def works(self, client: socket.socket, broker: socket.socket) -> Sequence[Callable[[], None]]:
        versions: dict[int, int] = {}
        return partial(self._requests, client, broker, versions), partial(self._responses, client, broker, versions)

    def _requests(self, client: socket.socket, broker: socket.socket, versions: dict[int, int]) -> None:
        with client.makefile("rb") as sent:
            while frame := _frame(sent):
                key, version, correlation = struct.unpack_from(">hhi", frame)
                if key == ApiVersionsResponse.API_KEY:
                    versions[correlation] = version
                broker.sendall(struct.pack(">i", len(frame)) + frame)

    def _responses(self, client: socket.socket, broker: socket.socket, versions: dict[int, int]) -> None:
        with broker.makefile("rb") as sent:
            while frame := _frame(sent):
                version = versions.pop(struct.unpack_from(">i", frame)[0], None)
                if version is not None:
                    frame = limited(frame, version, self.most)
                client.sendall(struct.pack(">i", len(frame)) + frame)


def _frame(source: IO[bytes]) -> bytes:
    """Return the next frame, empty at the end."""
    return source.read(int.from_bytes(source.read(4), "big"))


def limited(frame: bytes, version: int, most: Mapping[int, int | None]) -> bytes:
    """Return an ApiVersions response without the APIs and versions that are taken out."""
    if struct.unpack_from(">h", frame, 4)[0] == _UNSUPPORTED_VERSION:  # in the layout of version 0
        return frame
    response = ApiVersionsResponse.decode(frame, version=version, header=True)
    for one in response.api_keys:
        cap = most.get(one.api_key, one.max_version)
        one.max_version = -1 if cap is None else min(cap, one.max_version)
    response.api_keys = [one for one in response.api_keys if one.max_version >= one.min_version]
    return bytes(response.encode(header=True))


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


@pytest.fixture(scope="module")
def proxy() -> Iterator[ApiProxy]:
    with closing(ApiProxy()) as one:
        yield one


@pytest.fixture(scope="module")
def cluster(proxy: ApiProxy) -> Iterator[EmbeddedKafka]:
    (port,) = free_ports(1)
    settings = {**QUICK, "advertised.listeners": f"PLAIN://127.0.0.1:{port},SECURE://{proxy.address}"}
    with EmbeddedKafka(1, ports=[port], secure_protocol="PLAINTEXT", settings=settings) as kafka:
        proxy.leads_to = kafka.secure_bootstrap
        proxy.start()
        yield kafka


@pytest.fixture
def topic(proxy: ApiProxy, cluster: EmbeddedKafka, tmp_path: Path) -> str:
    """A topic of which a group has read all but one record."""
    proxy.most = {}
    return World(cluster.bootstrap, tmp_path / "unused").filled(OLD, {"all-but-one": 9})


def ask(proxy: ApiProxy, tmp_path: Path, *arguments: str, check: int | None = None) -> Cli:
    return run_cli(
        *(*arguments, "-b", proxy.address, "--timeout", "5s", "--state-dir", str(tmp_path / "state")),
        check=check,
    )


@pytest.mark.parametrize("name", APIS)
def test_doctor_names_a_missing_api(proxy: ApiProxy, topic: str, tmp_path: Path, name: str) -> None:
    proxy.most = dict([APIS[name]])
    done = ask(proxy, tmp_path, "doctor", topic)
    assert name.partition(" ")[0] in done.out + done.err
    assert "internal" not in done.err


@pytest.mark.parametrize("name", ["OffsetForLeaderEpoch", "DescribeLogDirs", "ListOffsets 6", "DescribeGroups"])
def test_trim_works_without_an_api_that_it_can_do_without(
    proxy: ApiProxy, topic: str, tmp_path: Path, name: str
) -> None:
    """Nothing here depends on what it would say."""
    proxy.most = dict([APIS[name]])
    done = ask(proxy, tmp_path, "trim", topic, "--consumed-after", "1h", "--yes", "-o", "json", check=0)
    assert [row["outcome"] for row in done.json()["partitions"]] == ["trimmed"]


def test_trim_without_deleterecords_fails_and_names_the_missing_api(
    proxy: ApiProxy, topic: str, tmp_path: Path
) -> None:
    proxy.most = dict([APIS["DeleteRecords"]])
    rehearsed = ask(proxy, tmp_path, "trim", topic, "--consumed-after", "1h", "--dry-run", "-o", "json")
    assert rehearsed.json()["partitions"][0]["outcome"] == "would-trim"
    done = ask(proxy, tmp_path, "trim", topic, "--consumed-after", "1h", "--yes")
    assert done == Cli(1, "", "kretain: this cluster does not offer DeleteRecords: nothing can be trimmed\n")
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
    ("cluster", "init", "--yes"): ("DescribeConfigs", "ListOffsets"),
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
    words = {"TOPIC": topic}
    for name, rules in (
        ("READ", "retention.commitoffset.enable: true, retention.commitoffset.ms: 1h"),
        ("POLICY", "retention.ms: 1d"),
        ("LIVE", "log.retention.min.timestamp: cluster, unconsumed: trim"),
    ):
        path = written(tmp_path / f"{name}.yaml", f'version: 1\ntopics:\n  - {{match: "{topic}", {rules}}}\n')
        words[name] = str(path)
    line = [words.get(word, word) for word in command]
    used = USES[command]
    proxy.most = dict.fromkeys(KEYS[name] for name in KEYS.keys() - {*used, *BESIDE.get(command[0], ())})
    done = ask(proxy, tmp_path, *line, check=0)
    assert "does not offer" not in done.out + done.err
    for name in used:
        proxy.most = {KEYS[name]: None}
        done = ask(proxy, tmp_path, *line)
        assert re.search(rf"does not offer [\w, ]*{name}\b", done.out + done.err), (name, done)
        assert "Traceback" not in done.err
    proxy.most = {3: 9}
    done = ask(proxy, tmp_path, *line, check=0 if command[0] == "watch" else 1)  # watch tries again
    assert "the broker does not offer Metadata in a version that fits" in done.err


def test_restore_is_refused_before_it_begins_where_transactions_are_missing(
    proxy: ApiProxy, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "archive").mkdir()
    proxy.most = {24: None, 26: None}
    done = ask(proxy, tmp_path, "restore", topic, "--from", str(tmp_path / "archive"), "--to", topic, "--yes")
    refuses(done, "this cluster does not offer AddPartitionsToTxn, EndTxn: nothing can be restored")


ELSEWHERE = "kafka.invalid:9092"


@pytest.fixture(scope="module")
def behind() -> Iterator[EmbeddedKafka]:
    """A broker whose second listener gives an address that no one knows."""
    (port,) = free_ports(1)
    settings = {**QUICK, "advertised.listeners": f"PLAIN://127.0.0.1:{port},SECURE://{ELSEWHERE}"}
    with EmbeddedKafka(1, ports=[port], secure_protocol="PLAINTEXT", settings=settings) as kafka:
        yield kafka


@pytest.mark.parametrize("command", [("plan", "*", "--older-than", "1d"), ("doctor",), ("groups",)], ids=" ".join)
def test_unreachable_advertised_address_is_named(behind: EmbeddedKafka, command: tuple[str, ...]) -> None:
    refuses(
        run_cli(*command, "-b", behind.secure_bootstrap, "--timeout", "2s"),
        f"{behind.secure_bootstrap} answered, but no broker did",
        f"at the addresses they give: {ELSEWHERE} (cannot resolve its host name",
        "advertised.listeners",
    )


def test_controller_port_is_recognised_at_once(behind: EmbeddedKafka) -> None:
    controller = f"127.0.0.1:{behind.nodes[0].ports[1]}"
    began = time.monotonic()
    done = run_cli("doctor", "-b", controller, "--timeout", "60s")
    assert time.monotonic() - began < 30
    refuses(done, f"{controller} answered, but that port is a KRaft controller's")
    run_cli("groups", "-b", f"{controller},{behind.bootstrap}", "--timeout", "60s", check=0)


@pytest.mark.parametrize(
    "length",
    [1 << 30, 0x15030100, -1],
    ids=["a GiB", "a TLS alert", "less than nothing"],
)
def test_oversized_frame_length_is_refused_before_memory_is_allocated(length: int) -> None:
    def answer() -> None:
        with suppress(OSError):
            while True:
                connection, _peer = server.accept()
                connection.recv(1 << 16)
                connection.sendall(struct.pack(">i", length) + bytes(1000))

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-m", "kretain", "plan", "-b", address, "--timeout", "1s", "x", "--older-than", "1d"]
        # 900 MiB of address space: a process without a thousand megabytes to spare.
        limited = ["sh", "-c", f'ulimit -v {900 * 1024}; exec "$@"', "sh", *command]
        done = subprocess.run(limited, capture_output=True, text=True, check=False)
        server.shutdown(socket.SHUT_RDWR)
    assert Cli(done.returncode, done.stdout, done.stderr) == Cli(
        1,
        "",
        (
            f"kretain: {address} could not be reached within 1 s: its answer is not a broker's, or far longer "
            f"than expected; is it a listener for PLAINTEXT?\n"
        ),
    )


def test_deadline_ends_a_run_like_ctrl_c() -> None:
    """``--timeout`` is one request's; against a broker that never answers, ``--deadline`` is the whole run's."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = run_cli(
            *("plan", "x", "--older-than", "1d", "-b", f"127.0.0.1:{silent.getsockname()[1]}"),
            *("--timeout", "100s", "--deadline", "1s"),
        )
    assert done == Cli(130, "", "kretain: --deadline 1 s has passed\nkretain: interrupted\n")


UNKNOWN_GROUPS = [f"unknown-{number}" for number in range(90)]
"""They have no commits; each is handed over all the same."""


class Taken:
    """Takes groups, slowly; at the fifth it does something."""

    def __init__(self, at_fifth: Any) -> None:
        self.names: list[str] = []
        self.busy = False
        self._at_fifth = at_fifth

    def __call__(self, found: GroupCommits | CommitsUnknown) -> None:
        self.busy = True
        self.names.append(found.group)
        if len(self.names) == 5:
            self._at_fifth()
        time.sleep(0.02)
        self.busy = False


def _interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _fail() -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize(("at_fifth", "error"), [(_interrupt, KeyboardInterrupt), (_fail, OSError)])
def test_abandoned_read_hands_over_no_more_results(world: World, at_fifth: Any, error: type[BaseException]) -> None:
    """A caller closes its ledger then: while another thread uses it, SQLite ends the process with a SIGSEGV."""
    taken = Taken(at_fifth)
    with reader_for(world.bootstrap) as reader:
        with pytest.raises(error):
            reader.read_commits(UNKNOWN_GROUPS, taken)
        names = list(taken.names)
        assert not taken.busy or error is OSError
        time.sleep(0.5)
        assert taken.names == names
        assert 5 <= len(names) < len(UNKNOWN_GROUPS)
        again = Taken(lambda: None)
        reader.read_commits(UNKNOWN_GROUPS, again)  # the connections are as good as before
        assert sorted(again.names) == sorted(UNKNOWN_GROUPS)
