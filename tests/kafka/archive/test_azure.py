"""An archive in Azure Blob Storage, encrypted: archived, trimmed, verified, compacted and restored with its groups."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from retention_cli.archive.layout import ArchiveError
from retention_cli.archive.store import Store
from tests.support.archiving import odd_flights, policy, produce, small, whole
from tests.support.azure import KEY, Azure, azure_server
from tests.support.world import World, run_cli

pytestmark = pytest.mark.long  # it downloads a server


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azure]:
    with azure_server(tmp_path_factory.mktemp("azure")) as server:
        yield server


def test_encrypted_archive_works_on_azure(
    world: World, azure: Azure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in azure.environ.items():
        monkeypatch.setenv(name, value)
    small(monkeypatch, 400)
    topic = world.topic("in-azure", partitions=2)
    for partition in range(2):
        produce(world, topic, odd_flights(1_200), partition, "zstd")
    before = [whole(world, topic, partition) for partition in range(2)]
    world.commit(f"{topic}-g", topic, {0: 1_200, 1: 1_200})
    key, file = tmp_path / "archive.key", tmp_path / "policy.yaml"
    key.write_bytes(base64.b64encode(os.urandom(32)))
    text = policy(topic, f'"{azure.url}"')
    file.write_text(f"archive.key: archive.key\n{text}")
    done = world.cli("trim", "-p", str(file), "--yes", "-o", "json", check=0)
    assert [one["outcome"] for one in done.json()["partitions"]] == ["trimmed"] * 2
    assert KEY not in done.out + done.err
    run_cli("archive", "verify", "-p", str(file), topic, check=0)
    locked = run_cli("archive", "verify", azure.url, topic, check=1)
    assert "is encrypted with the key of id" in locked.err
    target = world.topic("back", partitions=2, retention_ms="-1")
    arguments = ("--from", azure.url, "--archive-key", str(key), "--to", target, "--groups", "--yes")
    world.cli("restore", topic, *arguments, check=0)
    assert [whole(world, target, partition) for partition in range(2)] == before


def test_file_on_azure_is_never_seen_half_written(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Azure empties a file that is opened for writing; the old one counts until the new one is complete."""
    for name, value in azure.environ.items():
        monkeypatch.setenv(name, value)
    store = Store(azure.url)
    store.write("a/one.json", b"old")

    class Dies:
        def __buffer__(self, _flags: int) -> memoryview:
            raise OSError("out of memory")

    with pytest.raises((ArchiveError, TypeError)):
        store.write("a/one.json", Dies())
    assert store.read("a/one.json") == b"old"
    store.write("a/one.json", b"new")
    assert (store.read("a/one.json"), store.files("a")) == (b"new", ["a/one.json"])


def test_wrong_credentials_are_one_clear_line_without_the_token(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "?sv=2022-11-02&sp=rw&sig=HUSHHUSH%3D")
    with pytest.raises(ArchiveError, match=r"Azure does not accept these credentials") as refused:
        Store(azure.url).exists()
    elsewhere = azure.url.split("blob_storage_authority=")[0] + "blob_storage_authority=127.0.0.1:1&scheme=http"
    with pytest.raises(ArchiveError, match=r"the store can't be reached") as gone:
        Store(elsewhere).exists()
    assert "HUSH" not in str(refused.value) + str(gone.value)
