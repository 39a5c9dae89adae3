"""A cluster that lacks an API, or its newer versions: each command works, or names what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kretain.embedded import EmbeddedKafka
from kretain.embedded.node import free_ports
from tests.conftest import QUICK
from tests.support.api_proxy import ApiProxy
from tests.support.plain import kept_alive
from tests.support.world import HOUR, Cli, World, run_cli

OLD = [30 * HOUR] * 10
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
    advertised = f"PLAIN://127.0.0.1:{port},SECURE://127.0.0.1:{proxy.port}"
    settings = {**QUICK, "advertised.listeners": advertised}
    with EmbeddedKafka(1, ports=[port], secure_protocol="PLAINTEXT", settings=settings) as kafka:
        proxy.serve(int(kafka.secure_bootstrap.rpartition(":")[2]))
        yield kafka


@pytest.fixture
def topic(proxy: ApiProxy, cluster: EmbeddedKafka, tmp_path: Path) -> str:
    """A topic of which a group has read all but one record."""
    proxy.most = {}
    world = World(cluster.bootstrap, tmp_path / "unused")
    name = world.filled(OLD)
    world.commit("all-but-one", name, 9)
    return name


def ask(proxy: ApiProxy, tmp_path: Path, *arguments: str) -> Cli:
    state = ("--state-dir", str(tmp_path / "state"))
    return run_cli(*arguments, "-b", f"127.0.0.1:{proxy.port}", "--timeout", "5s", *state)


@pytest.mark.parametrize("name", APIS)
def test_doctor_names_a_missing_api(proxy: ApiProxy, topic: str, tmp_path: Path, name: str) -> None:
    proxy.most = dict([APIS[name]])
    done = ask(proxy, tmp_path, "doctor", topic)
    assert name.partition(" ")[0] in done.out + done.err
    assert "internal" not in done.err


@pytest.mark.parametrize("name", [name for name in APIS if name not in (*WORKS, "DeleteRecords")])
@pytest.mark.parametrize(
    "command", [("plan", "TOPIC", "--consumed-after", "1h"), ("offsets", "TOPIC"), ("groups",)], ids=lambda one: one[0]
)
def test_command_without_an_api_that_it_needs_names_it(
    proxy: ApiProxy, topic: str, tmp_path: Path, name: str, command: tuple[str, ...]
) -> None:
    proxy.most = dict([APIS[name]])
    done = ask(proxy, tmp_path, *(topic if word == "TOPIC" else word for word in command))
    if name == "DescribeConfigs" and command[0] != "plan":  # needs no settings
        assert done.code == 0
        return
    assert f"the broker does not offer {name.partition(' ')[0]}" in done.out + done.err
    assert "1 trim" not in done.out


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
    history = ask(proxy, tmp_path, "history", "-o", "json")
    assert "unverified" not in history.out


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
