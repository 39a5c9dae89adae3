"""Encrypt the files of an archive: AES-256-GCM, bound to the key's id and to the file's path in the archive.

A sealed file is a magic, the key's id, a nonce, and its content with a tag at the end. What was changed, cut off, or
put at another file's place does not open. A file is decrypted as a whole, as it was written: it has one segment.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from retention_cli.archive.layout import ArchiveError, DamagedError
from retention_cli.core.extras import arrow

_MAGIC: Final = b"KRETAIN1"
_NONCE: Final = 12
_HEADER: Final = len(_MAGIC) + 8
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
            raise KeyMissingError(
                f"{shown} is encrypted with the key of id {key_id}: name its file (archive.key); {given}"
            )
        return self.secrets[key_id]

    def covered(self, checksum: str, key_id: str, shown: str) -> str:
        """Return a checksum over records as a manifest has it: without the key it says nothing about them."""
        if not key_id:
            return checksum
        key = self.secret(key_id, shown)
        digest = hashlib.blake2b(checksum.encode(), key=key, digest_size=32, person=b"kretain records")
        return f"blake2b-keyed:{digest.hexdigest()}"

    def sealed(self, path: str, content: Any) -> Any:
        """Return the bytes to write for a file at this path. Without keys that is the content itself."""
        if not self.newest:
            return content
        header, nonce = _MAGIC + bytes.fromhex(self.newest), os.urandom(_NONCE)
        cipher = AESGCM(self.secrets[self.newest])
        return header + nonce + cipher.encrypt(nonce, memoryview(content).cast("B"), header + path.encode())

    def opened(self, file: Any, path: str, key_id: str, shown: str) -> Any:
        """Return a file's content for reading at random. ``file`` is open for that; no ``key_id``: it is not sealed.

        Raises:
            KeyMissingError: its key was not given.
            DamagedError: it is not what was sealed by that key for this path.
        """
        if not key_id:
            return file
        header, cipher = _MAGIC + bytes.fromhex(key_id), AESGCM(self.secret(key_id, shown))
        stored = memoryview(file.read())
        start = _HEADER + _NONCE
        content = None
        with contextlib.suppress(InvalidTag, ValueError):
            if stored[:_HEADER] == header:
                content = cipher.decrypt(stored[_HEADER:start], stored[start:], header + path.encode())
        if content is None:
            raise DamagedError(f"{shown} is damaged: its encrypted content was changed, or is another file's")
        return arrow().BufferReader(content)


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
