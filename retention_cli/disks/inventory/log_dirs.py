"""The log dirs themselves: their broker, their device, and its free space."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from retention_cli.core.files import read_file
from retention_cli.disks.inventory.layout import (
    LayoutError,
    MetaProperties,
    PartitionName,
    folder_of,
    meta_properties_in,
)

META_FILE: Final = "meta.properties"

_T = TypeVar("_T", int, str)


class ScanError(Exception):
    """Dirs can't be scanned, or an inventory can't be written; the text says what to do."""


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log dir. ``device`` is its file system's number as ``major:minor``; bytes are those of the whole device.

    ``usable_bytes`` is the free space for users other than root, as brokers report it.
    """

    path: str
    device: str
    directory_id: str | None
    total_bytes: int
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class LogDirs:
    """The log dirs of one broker. ``cluster_id`` is None if no ``meta.properties`` has it."""

    broker: int
    cluster_id: str | None
    dirs: tuple[LogDir, ...]


def find_log_dirs(paths: Sequence[str], broker: int | None = None) -> LogDirs:
    """Return the log dirs at the paths, in the order given. ``broker`` is the id if no ``meta.properties`` has one.

    Raises:
        ScanError: a dir is missing, given twice, or not a log dir; they are of two brokers or clusters, or of another
            broker than ``broker``; or no broker id is known.
    """
    found: list[LogDir] = []
    said: list[tuple[str, MetaProperties]] = []
    seen: dict[tuple[int, int], str] = {}
    for given in paths:
        path = os.path.abspath(given)  # noqa: PTH100  (links are not resolved: the broker knows the dir by this name)
        try:
            about, space = Path(path).stat(), os.statvfs(path)
            names = [one.name for one in Path(path).iterdir()]
        except OSError as error:
            raise ScanError(f"{path} can't be read: {error.strerror or error}") from None
        if (twin := seen.setdefault((about.st_dev, about.st_ino), path)) != path or path in [one.path for one in found]:
            raise ScanError(f"{twin} and {path} are the same folder: name it once")
        meta = _meta(path)
        if meta is None and not any(isinstance(folder_of(name), PartitionName) for name in names):
            raise ScanError(
                f"{path} is no log dir, as log.dirs in server.properties names them: "
                f"it holds neither {META_FILE} nor a partition"
            )
        if meta is not None:
            said.append((path, meta))
        unit = space.f_frsize
        device = f"{os.major(about.st_dev)}:{os.minor(about.st_dev)}"
        directory_id = None if meta is None else meta.directory_id
        found.append(LogDir(path, device, directory_id, space.f_blocks * unit, space.f_bavail * unit))
    brokers = _same("brokers", [(path, meta.broker) for path, meta in said if meta.broker is not None])
    clusters = _same("clusters", [(path, meta.cluster_id) for path, meta in said if meta.cluster_id is not None])
    if broker is not None and brokers is not None and broker != brokers:
        raise ScanError(f"{said[0][0]} belongs to broker {brokers}, not {broker}: leave --broker-id out")
    which = brokers if brokers is not None else broker
    if which is None:
        raise ScanError(f"no {META_FILE} says which broker {found[0].path} belongs to: give --broker-id")
    return LogDirs(which, clusters, tuple(found))


def usable_in(path: str) -> int:
    """Return the free bytes in a folder's file system for users other than root.

    Raises:
        OSError: it can't be read.
    """
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


def _same(what: str, said: Sequence[tuple[str, _T]]) -> _T | None:
    """Return the value that all dirs have, None if there is none.

    Raises:
        ScanError: two dirs have different values.
    """
    for path, value in said[1:]:
        if value != said[0][1]:
            raise ScanError(
                f"{said[0][0]} and {path} belong to two {what} ({said[0][1]} and {value}): scan each on its own"
            )
    return said[0][1] if said else None


def _meta(path: str) -> MetaProperties | None:
    file = Path(path, META_FILE)
    try:
        return meta_properties_in(read_file(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ScanError(f"{file} can't be read: {error.strerror or error}") from None
    except LayoutError as error:
        raise ScanError(f"{file}: {error}") from None
