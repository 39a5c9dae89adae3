"""Encrypted archives: what is sealed opens with its key, at its place, as a whole; anything else is damage."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.archive.catalog import compact, plan_compaction, read_catalog, verify_catalog
from retention_cli.archive.layout import ArchiveError, DamagedError
from retention_cli.archive.segment import records_of, verify_files
from retention_cli.archive.store import KeyMissingError, Keys, Store
from tests.support.archives import AT, SOURCE, sample, written


def key_file(folder: Path, name: str = "key", *, raw: bool = False) -> Path:
    file, secret = folder / name, os.urandom(32)
    file.write_bytes(secret if raw else base64.b64encode(secret) + b"\n")
    return file


KEYS = Keys("11" * 8, {"11" * 8: b"k" * 32, "22" * 8: b"l" * 32})


def opened(sealed: bytes, path: str = "p", keys: Keys = KEYS, key_id: str = KEYS.newest) -> bytes:
    return bytes(keys.opened(pa.BufferReader(sealed), path, key_id, "x.parquet").read())


@given(st.binary(max_size=300))
def test_sealed_content_opens_and_is_never_sealed_twice_alike(content: bytes) -> None:
    sealed = KEYS.sealed("p", pa.py_buffer(content))
    assert opened(sealed) == content
    assert KEYS.sealed("p", content) != sealed
    assert Keys().sealed("p", content) == content


@given(st.binary(min_size=1, max_size=99), st.data())
def test_change_cut_or_swap_of_sealed_content_is_damage(content: bytes, data: st.DataObject) -> None:
    sealed = bytes(KEYS.sealed("p", content))
    at = data.draw(st.integers(0, len(sealed) - 1))
    changed = sealed[:at] + bytes([sealed[at] ^ data.draw(st.integers(1, 255))]) + sealed[at + 1 :]
    for other in (changed, sealed[:at], sealed + b"x"):
        with pytest.raises(DamagedError):
            opened(other)
    for path, keys in (("q", KEYS), ("p", Keys("", {KEYS.newest: b"m" * 32}))):
        with pytest.raises(DamagedError):
            opened(sealed, path, keys)


def test_key_that_was_not_given_is_named_and_the_secret_is_not() -> None:
    with pytest.raises(
        KeyMissingError,
        match=r"^x.parquet is encrypted with the key of id 1{16}: name its file \(archive.key\); none was given$",
    ):
        opened(KEYS.sealed("p", b"c"), keys=Keys())
    assert "kkk" not in repr(KEYS)


@pytest.mark.parametrize("content", [b"", b"short", b"A" * 31, b"A" * 33, base64.b64encode(b"A" * 31), b"\xff" * 44])
def test_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    (file := tmp_path / "key").write_bytes(content)
    with pytest.raises(ArchiveError, match=r"is not a key: it has 32 bytes, or these in base64 \(openssl rand"):
        Keys.read([file])
    with pytest.raises(ArchiveError, match=r"gone can't be read: No such file"):
        Keys.read([tmp_path / "gone"])


def test_archive_is_read_by_its_keys_and_its_files_say_nothing_without(tmp_path: Path) -> None:
    """Rotation: the first key writes, all of them read. Manifests stay readable, and reveal no record."""
    old, new = key_file(tmp_path, "old"), key_file(tmp_path, "new", raw=True)
    url = str(tmp_path / "archive")
    first = written(Store(url, keys=[old]), sample(30))
    rotated = Store(url, keys=[new, old])
    second = written(rotated, [one._replace(offset=one.offset + 30) for one in sample(30)], start=30)
    plain = written(Store(str(tmp_path / "plain")), sample(30))
    assert first.files[0].checksum != plain.files[0].checksum
    assert [*records_of(rotated, first)] == sample(30)
    assert len({one.files[0].key for one in (first, second)}) == 2
    content = (tmp_path / "archive" / SOURCE.folder / first.files[0].path).read_bytes()
    assert content.startswith(b"KRETAIN1")
    assert b"PAR1" not in content
    (found,), _loose = read_catalog(Store(url))
    assert (found.records, found.problems) == (60, [])
    with pytest.raises(KeyMissingError):
        verify_catalog(Store(url, keys=[new]), [found])
    verify_catalog(rotated, [found])
    assert found.problems == []


def test_sealed_file_at_another_place_or_replaced_by_a_plain_one_is_damaged(tmp_path: Path) -> None:
    key = key_file(tmp_path)
    store, plain = Store(str(tmp_path / "archive"), keys=[key]), Store(str(tmp_path / "plain"))
    first, second = written(store, sample(30)), written(store, sample(60)[30:], start=30)
    one, other = (tmp_path / "archive" / SOURCE.folder / each.files[0].path for each in (first, second))
    right = one.read_bytes()
    unsealed = written(plain, sample(30))
    for wrong in (other.read_bytes(), (tmp_path / "plain" / SOURCE.folder / unsealed.files[0].path).read_bytes()):
        one.write_bytes(wrong[: len(right)].ljust(len(right), b"\0"))
        with pytest.raises(DamagedError):
            verify_files(store, first)
    one.write_bytes(right)
    verify_files(store, first)


def test_compaction_joins_sealed_segments_under_the_newest_key(tmp_path: Path) -> None:
    old, new = key_file(tmp_path, "old"), key_file(tmp_path, "new")
    url = str(tmp_path / "archive")
    written(Store(url, keys=[old]), sample(30))
    written(Store(url, keys=[old]), sample(60)[30:], start=30)
    store = Store(url, keys=[new, old])
    (partition,), _loose = read_catalog(store)
    (joined,) = compact(store, partition, plan_compaction(partition.segments), lambda: AT).written
    assert joined.files[0].key == store.keys.newest
    assert [*records_of(Store(url, keys=[new]), joined)] == sample(60)
