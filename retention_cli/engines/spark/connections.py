"""How executors get a connection's settings: from a file that they open themselves, never from a value in the code.

Plans, logs and Spark's own pages may show code and its arguments, but not the content of files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from retention_cli.brokers.errors import BrokerError, SettingsError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.client_files import Setting, read_properties, translate
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.engines.spark.session import shipped

_SETTINGS: Final = TypeAdapter(ConnectionSettings)


@dataclass(frozen=True, slots=True)
class ConnectionRef:
    """Where an executor finds a cluster's settings.

    ``shipped`` is the name of a file that Spark distributed, ``path`` a file on the machine where the task runs:
    kretain's JSON or, with ``bootstrap``, a client's properties file (``--executor-command-config``). Its
    ``bootstrap.servers``, if it has any, replace ``bootstrap``: executors may reach brokers at other addresses.
    """

    path: str | None = None
    shipped: str | None = None
    bootstrap: str | None = None

    def load(self) -> ConnectionSettings:
        """Read the settings, on an executor.

        Raises:
            SettingsError: the file is missing or not valid.
        """
        if self.bootstrap is not None and self.path is not None:
            given = read_properties(Path(self.path))
            return translate({"bootstrap.servers": Setting(self.bootstrap, "the client"), **given})
        file = Path(self.path) if self.path is not None else shipped(self.shipped or "")
        try:
            return _SETTINGS.validate_json(file.read_bytes())
        except OSError as error:
            raise SettingsError(f"the connection's file {file.name} can't be read here: {error.strerror}") from None
        except ValueError:  # without the error's text, which may quote a secret
            raise SettingsError(f"the connection's file {file.name} can't be understood here") from None


def write_connection(settings: ConnectionSettings, folder: Path, name: str) -> Path:
    """Write a cluster's settings for executors to a file that only this user may read; return its path."""
    path = folder / name
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(settings), file)
    return path


def check_cluster(reader: ClusterReader, cluster: str) -> None:
    """Check that a reader has reached this cluster: on another machine, its address may resolve to another cluster.

    A group that the other cluster does not have would seem to be deleted, and would protect nothing (F1).

    Raises:
        BrokerError: the reader has reached another cluster.
    """
    found = reader.metadata(()).cluster_id
    if found != cluster:
        raise BrokerError(f"{reader.settings.bootstrap} is cluster {found} from here, not {cluster}")


@contextmanager
def reader_of(cluster: str, connection: ConnectionRef, timeout_s: float) -> Iterator[ClusterReader]:
    """Yield a reader of a cluster, in a task; a request may take so many seconds.

    Raises:
        BrokerError: the cluster can't be reached from here, or another cluster answers.
    """
    with ExitStack() as stack:
        try:
            reader = stack.enter_context(ClusterReader(connection.load(), timeout_s))
        except SettingsError as error:
            raise BrokerError(str(error)) from None
        check_cluster(reader, cluster)
        yield reader
