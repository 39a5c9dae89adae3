"""The files of an archive on any of pyarrow's file systems, and how each writes a file atomically.

On a local disk a file is written under a temporary name, synced and renamed, so that a file under its final name is
complete. HDFS renames, too, and Azure copies. S3 and GCS show an object only when it is complete. A file that a
manifest may list is deleted by :meth:`Store.delete` alone, which only compaction calls.

Several processes may write the same file at once (a Spark task presumed lost, and its replacement): each first writes
to a temporary name of its own, ``.NAME.TOKEN.tmp``. On a local disk the next writer in the folder deletes those that
are more than a day old: their writers are dead.

Encrypted files have AES-256-GCM, bound to the key's id and to the file's path in the archive: a magic, the key's id, a
nonce, and the content with a tag at the end. A file that was changed, cut off, or put in another file's place does not
open. A file is decrypted in one piece, as it was written: it has one segment.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from retention_cli.archive.layout import ArchiveError, DamagedError
from retention_cli.core.extras import arrow
from retention_cli.core.file_problems import store_problem
from retention_cli.core.filesystems import FilesystemError, connect
from retention_cli.core.state_dir import sync_folder

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
        found = {
            hashlib.blake2b(secret, digest_size=8, person=b"kretain key id").hexdigest(): secret
            for secret in map(_secret_in, map(Path, files))
        }
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
        with contextlib.suppress(InvalidTag, ValueError):
            if stored[:_HEADER] == header:
                content = cipher.decrypt(stored[_HEADER:start], stored[start:], header + path.encode())
                return arrow().BufferReader(content)
        raise DamagedError(f"{shown} is damaged: its encrypted content was changed, or is another file's")


def _secret_in(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(1024)
    except OSError as error:
        raise ArchiveError(f"the archive's key {file} can't be read: {error.strerror}") from None
    if len(content) != _KEY:
        with contextlib.suppress(ValueError):
            content = base64.b64decode(content.strip(), validate=True)
    if len(content) != _KEY:
        raise ArchiveError(
            f"the archive's key {file} is not a key: it has 32 bytes, or these in base64 (openssl rand -base64 32)"
        )
    return content


RENAMES: Final = ("hdfs",)
"""File systems whose files may be visible before they are complete, and that can rename."""
_BESIDE: Final = re.compile(r"\..+\.(parquet|json)\.[0-9a-f]{32}\.tmp")
"""The temporary name of a file that is being written."""
_LEFT_AFTER_S: Final = 86_400.0


class Store:
    """One archive's files. Paths are relative to its URL, with slashes.

    Args:
        url: a URL as in a policy, or a local path.
        filesystem: the pyarrow file system to use instead of the URL's.
        base: the archive's folder in ``filesystem``.
        keys: the files of the keys that its files are encrypted with, the newest first; none: they are not.
    """

    def __init__(
        self, url: str, filesystem: Any = None, base: str = "", keys: Sequence[str | os.PathLike[str]] = ()
    ) -> None:
        self.url = url
        self.keys = Keys.read(keys)
        try:
            filesystem, base = connect(url) if filesystem is None else (filesystem, base)
        except FilesystemError as error:
            raise ArchiveError(f"the archive {url.partition('?')[0]} can't be reached: {error}") from None
        self._fs = filesystem
        self._base = base.rstrip("/")
        self._hdfs = filesystem.type_name in RENAMES

    def read(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises:
            ArchiveError: it can't be read.
        """
        with self._reported(path, "read"), self._fs.open_input_stream(self._at(path)) as stream:
            return bytes(stream.read())

    @contextlib.contextmanager
    def opened(self, path: str, key_id: str = "") -> Iterator[Any]:
        """Open a file for pyarrow's random access, decrypted if it is encrypted with a key.

        Raises:
            KeyMissingError: that key was not given.
            ArchiveError: it can't be read.
        """
        with self._reported(path, "read"), self._fs.open_input_file(self._at(path)) as file:
            yield self.keys.opened(file, path, key_id, self.shown(path))

    def digest(self, path: str) -> str:
        """Return a checksum over a file's bytes, the same as :func:`digest_of`.

        Raises:
            ArchiveError: it can't be read.
        """
        with self._reported(path, "read"), self._fs.open_input_stream(self._at(path), compression=None) as stream:
            return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=32)).hexdigest()

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes, None if there is no such file.

        Raises:
            ArchiveError: the file system returned an error.
        """
        with self._reported(path, "read"):
            info = self._info(self._at(path))
        return int(info.size) if info.is_file else None

    def write(self, path: str, content: Any) -> None:
        """Write a file, replacing an existing one; return when it is durable.

        Raises:
            ArchiveError: it can't be written. An existing file is kept.
        """
        at = self._at(path)
        with self._reported(path, "written"):
            if self._fs.type_name == "local":
                write_local(at, content)
            elif self._hdfs:
                self._write_and_rename(path, at, content)
            elif self._fs.type_name == "abfs":
                self._write_and_copy(at, content)
            else:
                with self._fs.open_output_stream(at, compression=None) as stream:
                    stream.write(content)

    def delete(self, path: str) -> None:
        """Delete a file, if it exists.

        Raises:
            ArchiveError: it can't be deleted.
        """
        with self._reported(path, "deleted"), contextlib.suppress(FileNotFoundError):
            if self._info(self._at(path)).is_file:
                self._fs.delete_file(self._at(path))

    def files(self, folder: str = "") -> list[str]:
        """Return the paths of all files below a folder, in order; none if there is no such folder.

        Raises:
            ArchiveError: it can't be listed.
        """
        from_fs = arrow("pyarrow.fs")
        at = self._at(folder) if folder else self._base
        with self._reported(folder or ".", "listed"):
            if self._hdfs and self._info(at).type == from_fs.FileType.NotFound:
                return []
            # On HDFS a folder that could not be listed would look like one that does not exist.
            found = self._fs.get_file_info(from_fs.FileSelector(at, allow_not_found=not self._hdfs, recursive=True))
        prefix = len(self._base) + 1 if self._base else 0
        return sorted(info.path[prefix:] for info in found if info.is_file)

    def exists(self) -> bool:
        """Return whether anything exists at the archive's URL.

        Raises:
            ArchiveError: the file system returned an error.
        """
        with self._reported(".", "read"):
            return bool(self._info(self._base or "/").type != arrow("pyarrow.fs").FileType.NotFound)

    def shown(self, path: str) -> str:
        """Return a file's location for display."""
        return f"{self.url.partition('?')[0]}/{path}"

    def _at(self, path: str) -> str:
        return f"{self._base}/{path}" if self._base else path

    def _write_and_rename(self, path: str, at: str, content: Any) -> None:
        place = PurePosixPath(at)
        beside, aside = str(place.with_name(_beside(place.name))), str(place.with_name(_beside(place.name, "old")))
        there = self._info(at).is_file
        with contextlib.suppress(ArchiveError):  # damaged: it is replaced
            if there and self.digest(path) == digest_of(content):
                return
        self._fs.create_dir(str(place.parent), recursive=True)
        try:
            with self._fs.open_output_stream(beside, compression=None) as stream:
                stream.write(content)
            if there:  # HDFS does not rename onto a file; the old file is kept until the new one has its name
                self._fs.move(at, aside)
            self._fs.move(beside, at)
        except OSError:
            with contextlib.suppress(OSError):
                if there and not self._info(at).is_file:
                    self._fs.move(aside, at)
            with contextlib.suppress(OSError):
                self._fs.delete_file(beside)
            raise
        if there:
            with contextlib.suppress(OSError):
                self._fs.delete_file(aside)

    def _write_and_copy(self, at: str, content: Any) -> None:
        """Copy the complete file over the other: on Azure, opening a file for writing would first empty it."""
        place = PurePosixPath(at)
        beside = str(place.with_name(_beside(place.name)))
        try:
            with self._fs.open_output_stream(beside, compression=None) as stream:
                stream.write(content)
            self._fs.copy_file(beside, at)
        finally:
            with contextlib.suppress(OSError):
                self._fs.delete_file(beside)

    def _info(self, at: str) -> Any:
        """Return the file info. On HDFS, pyarrow also returns "not found" where the look-up failed: ask again there.

        Raises:
            OSError: the file system returned an error.
        """
        from_fs = arrow("pyarrow.fs")
        info = self._fs.get_file_info(at)
        if info.type == from_fs.FileType.NotFound and self._hdfs:
            with contextlib.suppress(FileNotFoundError):
                self._fs.get_file_info(from_fs.FileSelector(at))
        return info

    @contextlib.contextmanager
    def _reported(self, path: str, done: str) -> Iterator[None]:
        """Raise a file system's error as an ArchiveError without its message, which may contain the full URL."""
        try:
            yield
        except (OSError, arrow().ArrowException) as error:
            if not isinstance(error, OSError) and "Azure" not in str(error):
                raise  # an error in the content, not of the store
            raise ArchiveError(f"{self.shown(path)} can't be {done}: {store_problem(error)}") from None


def digest_of(content: Any) -> str:
    """Return the checksum that :meth:`Store.digest` returns for a file with these bytes."""
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def _beside(name: str, kind: str = "tmp") -> str:
    return f".{name}.{uuid.uuid4().hex}.{kind}"


def write_local(at: str, content: Any) -> None:
    """Write, sync and rename a file: after a power failure either the old or the new file exists, complete."""
    folder, name = os.path.split(at)
    _make_folders(folder)
    beside = os.path.join(folder, _beside(name))  # noqa: PTH118
    try:
        with open(beside, "xb") as file:  # noqa: PTH123
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, at)  # noqa: PTH105
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)  # noqa: PTH108
        raise
    _sweep(folder)
    sync_folder(folder)


def _make_folders(folder: str) -> None:
    """Create a folder and those above it: a file in it is lost in a power failure if the name of one of them is."""
    if not os.path.isdir(folder or "."):  # noqa: PTH112
        above = os.path.dirname(folder)  # noqa: PTH120
        _make_folders(above)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)  # noqa: PTH102
        sync_folder(above or ".")


def _sweep(folder: str) -> None:
    with os.scandir(folder) as entries:
        for one in entries:
            with contextlib.suppress(OSError):
                if _BESIDE.fullmatch(one.name) and time.time() - one.stat().st_mtime > _LEFT_AFTER_S:
                    os.unlink(one)  # noqa: PTH108
