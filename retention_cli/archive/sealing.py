"""Encrypt the files of an archive: AES-256-GCM in chunks, each bound to its file, its place and the file's end.

A sealed file is a header (magic, key id, salt) and chunks of 1 MiB with a tag each. Its own key comes from the key
file's secret, the salt and the file's path in the archive (HKDF-SHA256). A chunk's nonce is its number, and whether it
is the last. So a chunk or a file that was changed, cut off, moved or swapped with another does not open.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from retention_cli.archive.layout import ArchiveError, DamagedError

_MAGIC: Final = b"KRETAIN1"
_SALT: Final = 16
_HEADER: Final = len(_MAGIC) + 8 + _SALT
_CHUNK: Final = 2**20
_TAG: Final = 16
_KEY: Final = 32


class KeyMissingError(ArchiveError):
    """A file is encrypted by a key that was not given."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Secrets by key id (hex); ``newest`` is the id of the one that new files are sealed with, "" without keys."""

    newest: str = ""
    secrets: dict[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, files: Sequence[str | os.PathLike[str]]) -> Keys:
        """Read key files, the newest first.

        Raises:
            ArchiveError: one can't be read, or has no key.
        """
        found = {_id_of(secret): secret for secret in map(_secret_in, map(Path, files))}
        return cls(next(iter(found), ""), found)

    def secret(self, key_id: str, shown: str) -> bytes:
        """Return the secret with this id; ``shown`` is the file that needs it.

        Raises:
            KeyMissingError: it was not given.
        """
        if key_id not in self.secrets:
            given = f"those given have the ids {', '.join(self.secrets)}" if self.secrets else "none was given"
            raise KeyMissingError(f"{shown} is encrypted with the key of id {key_id}: name its file; {given}")
        return self.secrets[key_id]

    def covered(self, checksum: str, key_id: str, shown: str) -> str:
        """Return a checksum over records as a manifest has it: without the key it says nothing about them."""
        if not key_id:
            return checksum
        key = self.secret(key_id, shown)
        return f"blake2b-keyed:{hashlib.blake2b(checksum.encode(), key=key, digest_size=32).hexdigest()}"

    def sealed(self, path: str, content: Any) -> Any:
        """Return the bytes to write for a file at this path: its content as it is, without keys."""
        if not self.newest:
            return content
        view = memoryview(content)
        header = _MAGIC + bytes.fromhex(self.newest) + os.urandom(_SALT)
        cipher = _cipher(self.secrets[self.newest], header, path)
        starts = range(0, max(1, len(view)), _CHUNK)
        chunks = (
            cipher.encrypt(_nonce(n, last=n == len(starts) - 1), bytes(view[at : at + _CHUNK]), header)
            for n, at in enumerate(starts)
        )
        return b"".join((header, *chunks))

    def opened(self, file: Any, path: str, key_id: str, shown: str) -> Any:
        """Return a file's content for reading at random. ``file`` is open for that; no ``key_id``: it is not sealed.

        Raises:
            KeyMissingError: its key was not given.
            DamagedError: it is not sealed by that key.
        """
        if not key_id:
            return file
        secret = self.secret(key_id, shown)
        file.seek(0)
        header = bytes(file.read(_HEADER))
        if len(header) < _HEADER or not header.startswith(_MAGIC + bytes.fromhex(key_id)):
            raise DamagedError(f"{shown} is damaged: it is not encrypted as its manifest says")
        return _Sealed(file, int(file.size()) - _HEADER, header, _cipher(secret, header, path), shown)


class _Sealed(io.RawIOBase):
    """The content of a sealed file: a chunk in memory at a time, and each is proven before any of it is returned."""

    def __init__(self, file: Any, sealed_bytes: int, header: bytes, cipher: AESGCM, shown: str) -> None:
        super().__init__()
        self._file, self._header, self._cipher, self._shown = file, header, cipher, shown
        self._chunks = max(1, -(-sealed_bytes // (_CHUNK + _TAG)))
        self._size = max(0, sealed_bytes - self._chunks * _TAG)
        self._at = 0
        self._chunk: tuple[int, bytes] = (-1, b"")
        self._opened(self._chunks - 1)  # where it is cut off, that does not say that it is the last

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        parts = []
        while self._at < end:
            number, begin = divmod(self._at, _CHUNK)
            part = self._opened(number)[begin : begin + end - self._at]
            parts.append(part)
            self._at += len(part)
        return b"".join(parts)

    def _opened(self, number: int) -> bytes:
        if self._chunk[0] != number:
            self._file.seek(_HEADER + number * (_CHUNK + _TAG))
            nonce = _nonce(number, last=number == self._chunks - 1)
            try:
                content = self._cipher.decrypt(nonce, bytes(self._file.read(_CHUNK + _TAG)), self._header)
            except InvalidTag:
                raise DamagedError(f"{self._shown} is damaged: what is encrypted there was changed or moved") from None
            self._chunk = number, content
        return self._chunk[1]


def _secret_in(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(1024)
    except OSError as error:
        raise ArchiveError(f"the archive's key {file} can't be read: {error.strerror}") from None
    if len(content) != _KEY:
        try:
            content = base64.b64decode(content.strip(), validate=True)
        except (binascii.Error, ValueError):
            content = b""
    if len(content) != _KEY:
        raise ArchiveError(
            f"the archive's key {file} is not a key: it has 32 bytes, or these in base64 (openssl rand -base64 32)"
        )
    return content


def _id_of(secret: bytes) -> str:
    return hashlib.blake2b(secret, digest_size=8, person=b"kretain key id").hexdigest()


def _cipher(secret: bytes, header: bytes, path: str) -> AESGCM:
    return AESGCM(HKDF(SHA256(), _KEY, salt=header[-_SALT:], info=path.encode()).derive(secret))


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])
