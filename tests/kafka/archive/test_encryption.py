"""Archives that are encrypted: trimmed, verified and restored by their key, and held without it."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from retention_cli.archive.layout import Source
from retention_cli.archive.store import Store
from retention_cli.archive.writer import archive_range
from tests.support.archiving import odd_flights, policy, produce, whole
from tests.support.world import World, reader_for, run_cli


def new_key(file: Path) -> Path:
    file.write_bytes(base64.b64encode(os.urandom(32)))
    return file


def test_encrypted_archive_comes_back_by_its_keys_alone(world: World, tmp_path: Path) -> None:
    """After a rotation, too: the first key encrypts, and all of them decrypt."""
    topic, place = world.topic("sealed"), tmp_path / "archive"
    produce(world, topic, odd_flights(400))
    before = whole(world, topic)
    keys = [new_key(tmp_path / name) for name in ("one.key", "two.key")]
    file = tmp_path / "policy.yaml"

    def trim(read: int, names: str) -> dict[str, object]:
        file.write_text(f"archive.key: {names}\n{policy(topic, place)}")
        world.commit(f"{topic}-g", topic, read)
        (row,) = world.cli("trim", "-p", str(file), "--yes", "-o", "json", check=0).json()["partitions"]
        return row

    assert trim(100, "one.key")["outcome"] == "trimmed"
    (first,) = place.rglob("*.parquet")
    stored = first.read_bytes()
    assert (stored[:8], b"carrier" in stored) == (b"KRETAIN1", False)
    assert trim(200, "[two.key, one.key]")["outcome"] == "trimmed"
    assert len({one.read_bytes()[8:16] for one in place.rglob("*.parquet")}) == 2
    gone = run_cli("archive", "verify", str(place), topic, "--archive-key", str(keys[1]), check=1)
    assert "is encrypted with the key of id" in gone.err
    assert len(gone.err.strip().splitlines()) <= 2
    run_cli("archive", "verify", "-p", str(file), topic, check=0)
    target = world.topic("opened", retention_ms="-1")
    arguments = ("restore", topic, "--to", target, "--groups", "--yes")
    world.cli(*arguments, "--from", str(place), "--archive-key", str(keys[1]), check=5)
    assert whole(world, target) == []
    world.cli(*arguments, "-p", str(file), check=0)
    assert whole(world, target) == before[:200]


def test_segment_that_cannot_be_decrypted_holds_and_is_not_written_again(world: World, tmp_path: Path) -> None:
    """It may have records that the log has no longer."""
    topic, place, key = world.topic("locked"), tmp_path / "archive", new_key(tmp_path / "one.key")
    produce(world, topic, odd_flights(50))
    with reader_for(world.bootstrap) as reader:
        metadata = reader.metadata([topic])
        source = Source(metadata.cluster_id, topic, str(metadata.topics[topic].topic_id), 0)
        archive_range(reader, Store(str(place), keys=[key]), source, 50, lambda: "2026-11-21T03:00:00.000Z")
    (first,) = place.rglob("*.parquet")
    stored = first.read_bytes()
    world.commit(f"{topic}-g", topic, 50)
    file = tmp_path / "policy.yaml"
    file.write_text(policy(topic, place))
    (row,) = world.cli("trim", "-p", str(file), "--yes", "-o", "json", check=0).json()["partitions"]
    assert row["outcome"] == "held"
    assert "is encrypted with the key of id" in row["reasons"][0]["text"]
    assert (first.read_bytes(), world.ends(topic)) == (stored, (0, 50))
    file.write_text(f"archive.key: one.key\n{policy(topic, place)}")
    world.cli("trim", "-p", str(file), "--yes", check=0)
    assert world.ends(topic) == (50, 50)
