"""Read what lies at a path or at a URL of pyarrow's file systems; what goes wrong is a source's error (F3)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from retention_cli.core.extras import MissingPartError, arrow
from retention_cli.core.file_problems import store_problem
from retention_cli.core.filesystems import FilesystemError, connect
from retention_cli.observe.floors.sources.interface import SourceError


class Storage:
    """A file system, and a place in it.

    Raises:
        SourceError: each method, where the place can't be read.
    """

    def __init__(self, url: str) -> None:
        """Connect to where a URL or a local path leads."""
        self.url = url
        self.shown = url.partition("?")[0]
        with self._as_source_error():
            self._filesystem, self._base = connect(url)

    def read(self, name: str, limit: int) -> tuple[bytes, int | None] | None:
        """Return a file's bytes, ``limit`` and one at the most, and when it was written (Unix ms).

        ``name`` is its path below the place, "" for the place itself. None where there is no such file.
        """
        path = f"{self._base}/{name}" if name else self._base
        with self._as_source_error():
            info = self._filesystem.get_file_info(path)
            if not info.is_file:
                return None
            with self._filesystem.open_input_stream(path, compression=None) as stream:
                content = bytes(stream.read(limit + 1))
        return content, None if info.mtime_ns is None else info.mtime_ns // 1_000_000

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder below the place; none where there is no such folder."""
        with self._as_source_error():
            selector = arrow("pyarrow.fs").FileSelector(f"{self._base}/{folder}", allow_not_found=True)
            return [info.base_name for info in self._filesystem.get_file_info(selector)]

    @contextmanager
    def _as_source_error(self) -> Iterator[Any]:
        try:
            yield
        except (FilesystemError, MissingPartError) as error:
            raise SourceError(f"{self.shown}: {error}") from None
        except OSError as error:
            text = store_problem(error).replace(self.url, self.shown)
            raise SourceError(f"{self.shown}: {text}") from None
