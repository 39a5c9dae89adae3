"""Whatever a file, a message or a frame holds: it is read, or refused in our words, and soon.

Three seconds each in ``make test-all``; ``make test-long`` takes FUZZ_MINUTES (30) for each.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import re
import shutil
import sqlite3
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from retention_cli.archive.layout import ArchiveError, manifest_text, read_manifest
from retention_cli.archive.store import Store
from retention_cli.audit.log import AuditLog
from retention_cli.brokers.errors import SettingsError
from retention_cli.brokers.security.client_files import read_properties, translate
from retention_cli.brokers.wire import batch_headers
from retention_cli.core.state_dir import StateError
from retention_cli.memory import documents
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.floors.sources import checkpoint
from retention_cli.observe.floors.sources.interface import SourceError
from retention_cli.observe.floors.sources.stored import read_positions
from retention_cli.plan.saved import SavedPlanError, read_plan, write_plan
from retention_cli.plan.value import plan_text
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.fleet_file import FleetFileError, load_fleet
from retention_cli.policy.load import load_policy
from retention_cli.policy.settings import FloorSource
from retention_cli.state import messages
from tests.support import logs
from tests.support.archives import sample, written
from tests.support.audit_logs import FOUR, append
from tests.support.checkpoints import reach_at, written as written_checkpoint
from tests.support.ledgers import IDS, TOPIC_ID, WRITTEN, filled, worst
from tests.support.plans import EVERY

STUMBLES: Final = (
    *(b"", b"\x00", b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", "\u202e".encode(), b"\x1b[2J", b"\r\n", b"\t"),
    *(b"-1", b"0", b"9" * 400, b"1e999", b"-9223372036854775809", b"NaN", b"0x10", b"1_000", b"null", b"true"),
    *(b"[" * 300, b"{" * 300, b'{"a":' * 300, b"- " * 300, b"&a [*a, *a]", b"<<: *a", b"!!python/object:os.system"),
    *(
        b"9999-12-31T23:59:59Z",
        b"0001-01-01T00:00:00+23:59",
        b"../../x",
        b"re:(a+)+$",
        b"re:(",
        b"*",
        b"\\u00",
        b"${x}",
    ),
)
_NUMBER: Final = re.compile(rb"-?\d+")


def mutated(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((1, 1, 2, 4, 16, 200)))
        match chance.randrange(8):
            case 0 if data:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            case 1:
                data[at:end] = b""
            case 2:
                data[at:at] = data[at:end] * chance.choice((1, 2, 50))
            case 3:
                data[at:at] = chance.choice(STUMBLES)
            case 4:
                data[at:end] = chance.randbytes(end - at)
            case 5:
                other = chance.choice(seeds)
                data[at:] = other[chance.randrange(len(other) + 1) :]
            case 6 if numbers := list(_NUMBER.finditer(bytes(data))):
                one = chance.choice(numbers)
                data[one.start() : one.end()] = chance.choice(STUMBLES)
            case 7:
                lines = bytes(data).splitlines(keepends=True)
                chance.shuffle(lines)
                data = bytearray(b"".join(lines))
    return bytes(data)


ROOT: Final = Path(__file__).parents[2]
SLOWEST_S: Final = 10.0
"""No input of a few kilobytes may take longer, on however busy a machine."""


class Target(NamedTuple):
    """What reads: seeds, how one input is read, and the errors that refuse it."""

    seeds: Sequence[bytes]
    read: Callable[[bytes], Any]
    refused: tuple[type[Exception], ...]


def file_target(path: Path, seeds: Sequence[bytes], read: Callable[[Path], Any], *refused: type[Exception]) -> Target:
    def through_a_file(data: bytes) -> None:
        path.write_bytes(data)
        read(path)

    return Target(seeds, through_a_file, refused)


def policies() -> list[bytes]:
    blocks = [
        block.partition("\n")[2].encode()
        for page in ("policy", "disks", "archive", "live-settings")
        for block in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").split("```")[1::2]
        if block.startswith("yaml")
    ]
    assert len(blocks) > 5
    return blocks


def policy(folder: Path) -> Target:
    return file_target(folder / "policy.yaml", policies(), load_policy, PolicyError)


def fleet(folder: Path) -> Target:
    seeds = [
        (
            b"version: 1\npolicy: p.yaml\nclusters:\n  - {name: eu, bootstrap-server: 'a:1', settings: {client.id: x}}\n"
            b"  - {name: us, context: us, timeout: 3s, state-dir: s}\n"
        ),
        *policies()[:1],
    ]
    return file_target(folder / "fleet.yaml", seeds, load_fleet, FleetFileError)


def client_file(folder: Path) -> Target:
    seeds = [
        (
            b"bootstrap.servers=a:1,b:2\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka."
            b'common.security.plain.PlainLoginModule required \\\n  username="a" password="b";\nssl.truststore.type=PEM\n'
        ),
        b"# c\nbootstrap.servers a:1\nacks : all\nssl.ca.pem=-----BEGIN CERTIFICATE-----\\nAA\nclient.id=\\u0041\n",
    ]
    return file_target(folder / "c.properties", seeds, lambda path: translate(read_properties(path)), SettingsError)


def plan_json(folder: Path) -> Target:
    return file_target(folder / "plan.json", [plan_text(EVERY).encode()], read_plan, SavedPlanError)


def plan_parquet(folder: Path) -> Target:
    path = folder / "plan.parquet"
    write_plan(path, EVERY)
    return file_target(path, [path.read_bytes()], read_plan, SavedPlanError)


def manifest(folder: Path) -> Target:
    one = written(Store(str(folder)), sample())
    return Target(
        [manifest_text(one).encode()], lambda data: read_manifest(data, one.place), (ArchiveError, ValueError)
    )


def ledger_file(folder: Path) -> Target:
    seed = filled(folder / "seed").read_bytes()

    def read(path: Path) -> None:
        for left in path.parent.glob("ledger.sqlite-*"):
            left.unlink()
        recall(path.parent)

    (folder / "again" / "seed").mkdir(parents=True)  # named as it was: a folder is a cluster
    return file_target(folder / "again" / "seed" / "ledger.sqlite", [seed], read, StateError)


def recall(folder: Path) -> None:
    with Ledger(folder) as ledger:
        ledger.begin(IDS)
        for topic, topic_id in IDS.items():
            for number in range(3):
                _ = ledger.partition(topic, topic_id, number).samples
        for name in ("g0", "g1", "g2"):
            ledger.group(name)
        list(ledger.gone_groups((), 0))


def ledger_row(folder: Path) -> Target:
    """Documents in rows whose checksums are right: somebody's own SQL, or a bug of another version."""
    seed = filled(folder / "seed")
    with sqlite3.connect(seed) as db:
        rows = [row[0] for row in db.execute("SELECT doc FROM groups")]
    path = folder / "again" / "seed" / "ledger.sqlite"
    path.parent.mkdir(parents=True)

    def read(data: bytes) -> None:
        for left in path.parent.iterdir():
            left.unlink()
        shutil.copy(seed, path)
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE groups SET doc = ? WHERE name = 'g0'", (data,))
        recall(path.parent)

    return Target([bytes(one) for one in rows], read, (StateError,))


def document(_folder: Path) -> Target:
    of_topic = documents.TopicDocument(TOPIC_ID, "orders", WRITTEN.at_ms, {0: worst(1), 3: worst(2)})
    seeds = [zlib.decompress(messages.encode(of_topic, WRITTEN)), messages.encode(of_topic, WRITTEN)]
    keys = [TOPIC_ID, f"{TOPIC_ID}/1", documents.GROUP + "g", documents.DISK + "d", messages.CLOCK_KEY, "x"]

    def read(data: bytes) -> None:
        for key in keys:
            with contextlib.suppress(messages.DocumentError):
                messages.decode(key, data)

    return Target(seeds, read, ())


def audit_lines(folder: Path) -> Target:
    made = AuditLog(folder)
    append(made, *FOUR)
    seed = made.path.read_bytes()

    def read(_path: Path) -> None:
        log = AuditLog(folder)
        with contextlib.suppress(StateError):
            log.verify()
        log.runs()

    return file_target(made.path, [seed], read, StateError)


def batch(_folder: Path) -> Target:
    content = b"".join(logs.batch(offset, [offset, offset + 1]) for offset in range(0, 20, 2))

    def read(data: bytes) -> None:
        batch_headers.walk(lambda size, at: data[at : at + size], 0, len(data), 0)
        for at in range(0, len(data), 61):
            batch_headers.parse(data, at, 0, 0)

    return Target([content], read, ())


def positions(_folder: Path) -> Target:
    rows = [{"topic": f"t{n}", "partition": n, "offset": n * 7} for n in range(5)]
    seeds = [json.dumps({"at": 1_800_000_000_000, "positions": rows}).encode(), b"t0,0,7\nt1,1,9\n"]
    return Target(seeds, read_positions, (SourceError,))


def query_checkpoint(folder: Path) -> Target:
    written_checkpoint(folder)
    seeds = [(folder / "offsets/1").read_bytes()]
    source = FloorSource("checkpoint", "fuzzed", place=str(folder), max_age_ms=None)
    return file_target(folder / "offsets/1", seeds, lambda _: checkpoint.read(source, reach_at(0)), SourceError)


TARGETS: Final = (
    *(policy, fleet, client_file, plan_json, plan_parquet, manifest, ledger_file, ledger_row, document, audit_lines),
    *(batch, positions, query_checkpoint),
)


def fuzzed(target: Target, seconds: float, seed: int) -> tuple[int, int]:
    """Read mutated inputs for so long; return how many there were, and how many were refused."""
    end = time.monotonic() + seconds
    tried = refused = 0
    while time.monotonic() < end:
        data = mutated(random.Random(seed + tried), target.seeds)
        tried += 1
        began = time.monotonic()
        try:
            target.read(data)
        except target.refused as error:
            refused += 1
            assert str(error).strip() or getattr(error, "problems", None), "refused without a word"
        except Exception as error:
            raise AssertionError(f"seed {seed + tried - 1}: {base64.b64encode(data).decode()}") from error
        took = time.monotonic() - began
        assert took < SLOWEST_S, f"seed {seed + tried - 1} took {took:.0f} s: {base64.b64encode(data).decode()}"
    return tried, refused


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(1.0, marks=pytest.mark.thorough),
        pytest.param(
            60 * float(os.environ.get("FUZZ_MINUTES", "30")), marks=[pytest.mark.long, pytest.mark.timeout(4 * 3600)]
        ),
    ],
    ids=["seconds", "minutes"],
)
@pytest.mark.parametrize("make", TARGETS, ids=lambda make: make.__name__)
def test_parser_reads_or_refuses_mutated_input(make: Callable[[Path], Target], seconds: float, tmp_path: Path) -> None:
    target = make(tmp_path)
    target.read(target.seeds[0])
    tried, refused = fuzzed(target, seconds, 0 if seconds == 1 else random.randrange(2**32))
    print(f"{make.__name__}: {tried:,} inputs in {seconds:g} s, {refused:,} refused")  # noqa: T201  (the figure that a run by hand is for)
    assert tried > 5
