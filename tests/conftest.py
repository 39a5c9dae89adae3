"""One 3-node Kafka a session, for what breaks nothing. What breaks something starts its own."""

from __future__ import annotations

import faulthandler
import hashlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest
from xdist.scheduler import LoadFileScheduling

from kretain.embedded import cluster as embedded, jars
from tests.support.clusters import EmbeddedKafka
from tests.support.processes import once
from tests.support.world import World

ROOM = 12 << 30
"""Memory that must be free (bytes) for a session's files to lie in it: brokers and Spark need most of that."""


def use_memory(place: Path = Path("/dev/shm")) -> None:
    """Let this process's temporary files lie in memory, where there is room: trims and new topics wait for fsyncs."""
    if "TMPDIR" in os.environ or not os.access(place, os.W_OK):
        return
    if min(psutil.virtual_memory().available, psutil.disk_usage(str(place)).free) >= ROOM:
        os.environ["TMPDIR"] = tempfile.tempdir = str(place)


use_memory()


@pytest.fixture(scope="session")
def archived_classes() -> None:
    """Every broker of a session starts from one archive of classes; the first session on a machine makes it."""
    content = f"{jars.find_java().resolve()}\0{EmbeddedKafka().class_path()}".encode()
    options = embedded.JVM_OPTIONS

    def make(file: Path) -> None:
        embedded.JVM_OPTIONS = (*options, f"-XX:ArchiveClassesAtExit={file}", "-Xlog:cds=off")
        with EmbeddedKafka() as kafka:
            kafka.node(1).terminate()

    archive = once(jars.cache_dir() / "classes" / f"kafka-{hashlib.sha256(content).hexdigest()[:16]}.jsa", make)
    embedded.JVM_OPTIONS = (*options, f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off")


QUICK = {
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "100",
    "offsets.commit.timeout.ms": "10000",
    "transaction.max.timeout.ms": "900000",
}
"""Broker settings that let tests see in seconds what takes minutes in production."""


# How long an example takes, or takes to be made, is the machine's business.
for profile, examples in (("kretain", 25), ("thorough", 200)):
    hypothesis.settings.register_profile(
        profile, deadline=None, max_examples=examples, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "kretain"))

# Where a shell started us in the background it made us, and whom we start, deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


_ON_BROKERS = ("spark", "clients", "kafka")
_SAMPLE = frozenset(
    (
        *("test_scenarios", "test_observe", "test_time_guards", "test_floors", "test_trim"),
        *("test_turns", "test_kretain_topics", "test_cli", "test_archive", "test_watch"),
    )
)
"""The files of tests on real brokers that `make test` runs: decisions, floors, deletes, and a command of each kind."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow rooms first: what is handed out last must not keep one worker busy alone."""
    rooms = (*_ON_BROKERS, "simulation", "fuzz", "unit")
    room_of = {item: item.path.relative_to(Path(__file__).parent).parts[0] for item in items}
    items.sort(key=lambda item: rooms.index(room_of[item]))
    for item in items:
        if room_of[item] == "spark" or (room_of[item] in _ON_BROKERS and item.path.stem not in _SAMPLE):
            item.add_marker(pytest.mark.thorough)


class _Files(LoadFileScheduling):
    """A file's tests stay with one worker; all that need Spark in this process share one: it gets quick with use."""

    def _split_scope(self, nodeid: str) -> str:
        path = Path(super()._split_scope(nodeid))
        in_process = ("test_archive", "test_local", "test_sources")
        return "spark" if path.parent.name == "spark" and path.stem in in_process else str(path)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Say which tests go together."""
    return _Files(config, log)


_FAULTS = Path(__file__).parents[1] / ".venv" / "faults"


def pytest_sessionstart(session: pytest.Session) -> None:
    """A worker that crashes says where, in a file: what it prints to stderr is lost among the dots."""
    worker: str | None = getattr(session.config, "workerinput", {}).get("workerid")
    if worker is None:
        shutil.rmtree(_FAULTS, ignore_errors=True)
    _FAULTS.mkdir(parents=True, exist_ok=True)  # two sessions may share this checkout
    if worker is not None:
        faulthandler.enable((_FAULTS / worker).open("w"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say where workers crashed."""
    for file in sorted(_FAULTS.glob("*")):
        if text := file.read_text():
            terminalreporter.section(f"{file.name} crashed", sep="_")
            terminalreporter.write_line(text)


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing of the person who runs the tests is read or written: no contexts, no state, no variables."""
    home = tmp_path_factory.mktemp("home")
    for name in [name for name in os.environ if name.startswith("KRETAIN_")]:
        del os.environ[name]
    os.environ["XDG_CONFIG_HOME"] = str(home / "config")
    os.environ["XDG_STATE_HOME"] = str(home / "state")


@pytest.fixture(scope="session")
def kafka(archived_classes: None) -> Iterator[EmbeddedKafka]:
    """Three nodes that no test may harm."""
    with EmbeddedKafka(3, settings=QUICK) as cluster:
        yield cluster


@pytest.fixture
def world(kafka: EmbeddedKafka, tmp_path: Path) -> World:
    """The shared cluster, with a state directory of the test's own."""
    return World(kafka.bootstrap, tmp_path / "state")
