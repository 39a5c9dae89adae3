"""Read files that the user names, if they are regular files and not too large; write files completely or not at all.

And open file systems by URL, with pyarrow: this machine's disk and remote ones.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import parse_qsl, urlsplit

from retention_cli.core.extras import arrow

MIB: Final = 1 << 20
SETTINGS_MAX_BYTES: Final = 16 * MIB
"""The limit for a policy, a fleet, contexts, a client's properties, a PEM file or a key store: none is larger."""
PLAN_MAX_BYTES: Final = 1 << 30


def home() -> Path:
    """Return the user's home, ``/`` for one without: a container's user may have no HOME and no entry in passwd."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def beside(folder: Path, name: str) -> Path:
    """Return the path that a file in ``folder`` names: relative to it, from the root, or from a home (``~``).

    ``~NAME`` where there is no such user is a file of that name.
    """
    try:
        return folder / Path(name).expanduser()
    except RuntimeError:
        return folder / name


def read_file(path: Path, most_bytes: int = SETTINGS_MAX_BYTES, *, pipes: bool = False) -> bytes:
    """Return a file's content. Pipes and devices are refused, as they could block or never end.

    Args:
        path: the file.
        most_bytes: how large it may be.
        pipes: whether it may be a pipe, such as a shell's ``<(command)``, which may read secrets from a vault.

    Raises:
        OSError: it can't be read, is not a regular file, or is too large; ``strerror`` has the reason.
    """
    with open_regular(path, pipes=pipes) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes // MIB:,} MiB")
    return content


def open_regular(path: Path, *, pipes: bool = False) -> BinaryIO:
    """Open a regular file for reading, or a pipe if ``pipes`` are allowed. Anything else could block or never end.

    Raises:
        OSError: it can't be opened, or is something else.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if pipes else os.O_NONBLOCK))
    refuse_odd(handle, pipes=pipes)
    return os.fdopen(handle, "rb")


def refuse_odd(handle: int, *, pipes: bool = False) -> None:
    """Check that an open file is a regular file, or a pipe if ``pipes`` are allowed; close anything else.

    Raises:
        OSError: it is a folder, a pipe, a socket or a device.
    """
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or (pipes and stat.S_ISFIFO(mode)):
        return
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")


class FileError(Exception):
    """The file could not be written."""


@contextmanager
def whole(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``, and move the file to ``path`` once it was written completely.

    ``mode`` are its permissions, by default those of any new file.

    Raises:
        FileError: it can't be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent or Path(), prefix=f".{path.name}.")
        os.close(handle)
        scratch = Path(name)
        try:
            yield scratch
            if mode is None:
                umask = os.umask(0)
                os.umask(umask)
                mode = 0o666 & ~umask
            scratch.chmod(mode)
            scratch.replace(path)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FileError(f"{path} can't be written: {error.strerror or error}") from None


def write_whole(path: Path, parts: Iterable[str], mode: int | None = None) -> None:
    """Write a text: readers see the old file or the new one, never a part of it.

    Raises:
        FileError: it can't be written.
    """
    with whole(path, mode) as scratch, scratch.open("w", encoding="utf-8") as stream:
        stream.writelines(parts)


_DOCS: Final = "See docs/archive.md"
_HADOOP: Final = (
    ("libjvm", f"HDFS needs Java, and there is no libjvm.so to be found: JAVA_HOME names a Java. {_DOCS}"),
    (
        "Unable to load libhdfs",
        f"HDFS needs Hadoop's libhdfs.so: ARROW_LIBHDFS_DIR or HADOOP_HOME names where it is. {_DOCS}",
    ),
    (
        "HDFS connection failed",
        (
            "Hadoop's client does not start, or knows no such place: CLASSPATH must begin with the folder of "
            f"hdfs-site.xml and name every jar (`hadoop classpath --glob`). {_DOCS}"
        ),
    ),
)
"""What pyarrow says where a part of Hadoop's client is missing, with every path that it tried; and what to do."""


class FilesystemError(Exception):
    """A URL's file system can't be used. The text has the reason, without the URL's part after a question mark."""


def connect(url: str) -> tuple[Any, str]:
    """Return pyarrow's file system for a URL or a local path, and the path in it.

    Raises:
        FilesystemError: it can't be reached, or a part of its client is missing.
        MissingPartError: pyarrow is not installed.
    """
    fs = arrow("pyarrow.fs")
    if "://" not in url:
        return fs.LocalFileSystem(), os.path.abspath(url)  # noqa: PTH100  (resolve would follow links)
    try:
        if url.startswith(("abfs://", "abfss://")):
            return _azure(fs, url)
        if url.startswith("hdfs:///"):  # wherever Hadoop's own settings lead
            return fs.HadoopFileSystem("default"), url.removeprefix("hdfs://")
        found, base = fs.FileSystem.from_uri("gs://" + url[6:] if url.startswith("gcs://") else url)
    except (OSError, ValueError, NotImplementedError) as error:
        said = " ".join(str(error).split()).replace(url, url.partition("?")[0])
        raise FilesystemError(next((ours for theirs, ours in _HADOOP if theirs in said), said)) from None
    return found, base


def _azure(fs: Any, url: str) -> tuple[Any, str]:
    """Return Azure's file system for ``abfss://container@account.dfs.core.windows.net/path``, as Hadoop writes it.

    The account's key or a SAS token come from the variables of Azure's own command line; else pyarrow looks for an
    identity (of the environment, the workload, or the machine).
    """
    if not hasattr(fs, "AzureFileSystem"):
        raise FilesystemError(f"this pyarrow does not support Azure: install a newer one. {_DOCS}")
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query))
    container, _, host = parts.netloc.rpartition("@")
    account, _, suffix = host.partition(".")
    key = os.environ.get("AZURE_STORAGE_KEY")
    found = fs.AzureFileSystem(
        account,
        account_key=key,
        sas_token=None if key else os.environ.get("AZURE_STORAGE_SAS_TOKEN"),
        blob_storage_authority=given.get("blob_storage_authority", f".{suffix.replace('dfs.', 'blob.', 1)}"),
        dfs_storage_authority=given.get("dfs_storage_authority", f".{suffix}"),
        blob_storage_scheme=given.get("scheme", "https"),
        dfs_storage_scheme=given.get("scheme", "https"),
    )
    return found, f"{container}{parts.path}".rstrip("/")
