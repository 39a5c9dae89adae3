"""More than 200 changes to evidence, audit log and archive that real code wrote: each is found (docs/evidence.md)."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from retention_cli.archive.catalog import read_catalog, verify_catalog
from retention_cli.archive.store import Store
from retention_cli.audit.chain import Link, signature_line
from retention_cli.audit.files import FILE_NAME, HEAD_NAME, read_head
from retention_cli.audit.log import AuditLog
from retention_cli.core.state_dir import StateError
from retention_cli.evidence.files import content_of, digest_of, part_of
from retention_cli.evidence.verify import verify_runs
from tests.support.archives import sample, written
from tests.support.evidence import RUN, left_behind, trimmed, usual

KEY: Final = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
THIEF: Final = Ed25519PrivateKey.from_private_bytes(b"t" * 32)
RUNS: Final = (RUN, "20270116T080000Z-0002")
EACH: Final = 17

Random = random.Random
Mutation = Callable[[Path, Random], None]


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two signed runs of one cluster, what its files were in between, and an archive of three segments."""
    place = tmp_path_factory.mktemp("good")
    folder, archive = place / "state" / "cluster", Store(str(place / "archive"))
    for seed, run in enumerate(RUNS):
        rows, seen = usual(6, topics=2, seed=seed)
        left_behind(folder, rows, seen, trimmed(rows), run)
        AuditLog(folder).append(
            signature_line(run, read_head(folder) or Link(), KEY) | {"at": "2027-01-15T08:00:00.000Z"}
        )
        if seed == 0:
            shutil.copytree(folder, place / "older")
    for start in (0, 10, 20):
        written(archive, sample(30)[start : start + 10], start)
    assert found(place) == []
    return place


def found(place: Path, keys: tuple[Ed25519PrivateKey, ...] = (KEY,)) -> list[str]:
    """Return what verify, and archive verify, find."""
    try:
        verdicts = verify_runs(place / "state", RUNS, keys=[one.public_key() for one in keys])
    except StateError as error:
        return [str(error)]
    store = Store(str(place / "archive"))
    partitions, loose = read_catalog(store)
    verify_catalog(store, partitions)
    told = [f"{one.where}: {one.text}" for verdict in verdicts for one in verdict.findings]
    return [*told, *(text for one in partitions for text in one.problems), *loose]


def a_file(place: Path, draw: Random, glob: str) -> Path:
    return draw.choice(sorted(one for one in place.glob(glob) if one.is_file()))


EVIDENCE: Final = "state/cluster/evidence/*/*.parquet"
ANY: Final = "[sa]*/**/*"


def any_byte(place: Path, draw: Random) -> None:
    """Change a byte. An archive's checksums are of its records: that one says the same in other bytes is no change."""
    path = a_file(place, draw, ANY)
    whole = path.read_bytes()
    while True:
        n = draw.randrange(len(whole))
        path.write_bytes(whole[:n] + bytes([whole[n] ^ 1 << draw.randrange(8)]) + whole[n + 1 :])
        with contextlib.suppress(OSError, pa.ArrowException, ValueError):
            if "archive" in path.parts and pq.read_table(path).equals(pq.read_table(pa.BufferReader(whole))):
                continue
        return


def cut_tail(place: Path, draw: Random) -> None:
    path = a_file(place, draw, ANY)
    whole = path.read_bytes()
    path.write_bytes(whole[: draw.randrange(len(whole) - 1)])  # the last byte of a text says nothing


def dropped_file(place: Path, draw: Random) -> None:
    a_file(place, draw, ANY).unlink()


def swapped_files(place: Path, draw: Random) -> None:
    kind = draw.choice([EVIDENCE, "archive/**/*.parquet", "archive/**/*.json"])
    one, other = draw.sample(sorted(place.glob(kind)), 2)
    whole = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(whole)


def older_file(place: Path, draw: Random) -> None:
    """The log, its head, both, or a run's evidence as they were a run ago."""
    old, new = place / "older", place / "state" / "cluster"
    match draw.randrange(4):
        case 0:
            shutil.copy(old / FILE_NAME, new)
        case 1:
            shutil.copy(old / HEAD_NAME, new)
        case 2:
            shutil.rmtree(new)
            shutil.copytree(old, new)
        case _:
            name = draw.choice(["001-facts.parquet", "results.parquet"])
            shutil.copy(old / "evidence" / RUNS[0] / name, new / "evidence" / RUNS[1] / name)


def lines_of_log(place: Path, draw: Random) -> None:
    path = place / "state" / "cluster" / FILE_NAME
    lines = path.read_text().splitlines()
    n = draw.randrange(len(lines))
    match draw.randrange(4):
        case 0:
            del lines[n]
        case 1:
            lines.insert(draw.randrange(len(lines) + 1), lines[n])
        case 2:
            del lines[n:]
        case _:
            other = draw.choice([one for one in range(len(lines)) if one != n])
            lines[n], lines[other] = lines[other], lines[n]
    path.write_text("".join(f"{one}\n" for one in lines))


def other_value(value: object, draw: Random) -> object:
    """Return another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + draw.choice([-3_600_000, -1, 1, 60_000])
        case str():
            return value + "x"
        case None:
            return 7
        case dict() if value:
            name = draw.choice(sorted(value))
            return {**value, name: other_value(value[name], draw)}
        case [first, *more]:
            return [other_value(first, draw), *more]
    return "x"


def values_of_log(place: Path, draw: Random) -> None:
    path = place / "state" / "cluster" / FILE_NAME
    lines = path.read_text().splitlines()
    n = draw.randrange(len(lines))
    lines[n] = json.dumps(other_value(json.loads(lines[n]), draw))
    path.write_text("".join(f"{one}\n" for one in lines))


def change_table(path: Path, draw: Random, kind: str) -> None:
    """Change a file's rows, and write it as kretain does: its own checksums are right."""
    table = part_of(path.name, path.read_bytes()).table
    rows: list[dict[str, Any]] = table.to_pylist()
    n, other = draw.sample(range(len(rows)), 2)
    match kind:
        case "value":
            name = draw.choice([one for one, value in rows[n].items() if value not in (None, [])])
            rows[n][name] = other_value(rows[n][name], draw)
        case "clock":
            name = draw.choice([one for one in rows[n] if one.endswith("_ms") and rows[n][one] is not None])
            for row in rows:
                row[name] += 3_600_000
        case "drop":
            del rows[n]
        case _:
            name = draw.choice([one for one in rows[n] if rows[n][one] != rows[other][one]])
            rows[n][name], rows[other][name] = rows[other][name], rows[n][name]
    path.write_bytes(content_of(type(table).from_pylist(rows, table.schema)))


def rows_of(kind: str) -> Mutation:
    return lambda place, draw: change_table(a_file(place, draw, EVIDENCE), draw, kind)


def forged(place: Path, draw: Random) -> None:
    """A thief without the key changes evidence or the log, and writes every checksum and hash again."""
    folder = place / "state" / "cluster"
    events = [json.loads(one) for one in (folder / FILE_NAME).read_text().splitlines()]
    kind, signs = draw.choice(["value", "clock", "drop", "swap", "log"]), draw.random() < 0.5
    if kind == "log":
        event = draw.choice([one for one in events if one["event"] in ("run", "batch", "end", "result")])
        event["at"] = "2026-01-01T00:00:00.000Z"
    else:
        path = a_file(place, draw, EVIDENCE)
        change_table(path, draw, kind)
        for event in events:
            if event["event"] == "evidence" and (event["run"], Path(event["file"]).name) == (
                path.parent.name,
                path.name,
            ):
                event["sha256"] = digest_of(path.read_bytes())
    for name in (FILE_NAME, HEAD_NAME):
        (folder / name).unlink()
    for event in events:
        new = {name: value for name, value in event.items() if name not in ("seq", "prev")}
        if event["event"] == "signature" and signs:
            new |= signature_line(event["run"], read_head(folder) or Link(), THIEF)
        AuditLog(folder).append(new)
    assert AuditLog(folder).verify().breaks == []


KINDS: Final[Mapping[str, Mutation]] = {
    "any byte": any_byte,
    "a tail cut off": cut_tail,
    "a dropped file": dropped_file,
    "two swapped files": swapped_files,
    "an older file": older_file,
    "lines of the log": lines_of_log,
    "values in the log": values_of_log,
    **{f"evidence: {kind}": rows_of(kind) for kind in ("value", "clock", "drop", "swap")},
    "all hashes made again": forged,
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_mutation_is_found(kind: str, good: Path, tmp_path: Path) -> None:
    unseen = []
    for n in range(EACH):
        place = tmp_path / str(n)
        shutil.copytree(good, place)
        KINDS[kind](place, random.Random(f"{kind} {n}"))
        if not found(place):
            unseen.append(n)
    assert unseen == []
    assert EACH * len(KINDS) >= 200


def test_line_behind_a_signature_is_found(good: Path, tmp_path: Path) -> None:
    """Whoever appends needs no key, and the chain is whole: the run no longer ends with its signature."""
    shutil.copytree(good, tmp_path / "0")
    AuditLog(tmp_path / "0" / "state" / "cluster").append({"event": "note", "run": RUN})
    assert found(tmp_path / "0", ()) == []
    assert "not signed" in "".join(found(tmp_path / "0"))
    assert len(found(good, (THIEF,))) == len(RUNS)
