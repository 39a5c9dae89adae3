"""How executors get a connection's settings: from a file that they open themselves, never from a value in the code.

Plans, logs and Spark's own pages may show code and its arguments, but not the content of files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from retention_cli.brokers.errors import BrokerError, SettingsError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.client_files import Setting, read_properties, translate
from retention_cli.brokers.security.oauth_settings import OAuthSettings
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.engines.spark.session import shipped


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
            content = json.loads(file.read_text(encoding="utf-8"))
            known = {one.name for one in fields(ConnectionSettings)}
            if not isinstance(content, dict) or not content.keys() <= known:
                raise SettingsError(f"{file.name}: is no connection of kretain's")
            if content.get("oauth") is not None:
                content["oauth"] = OAuthSettings.from_plain(content["oauth"])
            content["left_out"] = tuple(content.get("left_out", ()))
            return ConnectionSettings(**content)
        except OSError as error:
            raise SettingsError(f"the connection's file {file.name} can't be read here: {error.strerror}") from None
        except (ValueError, TypeError, AttributeError):  # without the error's text, which may quote a secret
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


class Readers:
    """The readers of one task, one per cluster, opened at first use. A context manager.

    Args:
        jobs: where tasks find the settings of clusters, and the time-out of a request (seconds).
    """

    def __init__(self, jobs: Mapping[str, tuple[ConnectionRef, float]] = MappingProxyType({})) -> None:
        self._jobs = jobs
        self._open: dict[str, ClusterReader] = {}
        self._failed: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for reader in self._open.values():
            reader.__exit__(kind, error, at)
        self._open = {}

    def get(self, cluster: str) -> ClusterReader:
        """Return the reader of a cluster, by its id; see :meth:`opened`."""
        return self.opened(cluster, *self._jobs[cluster])

    def opened(self, cluster: str, connection: ConnectionRef, timeout_s: float) -> ClusterReader:
        """Return the reader of a cluster.

        Raises:
            BrokerError: the cluster can't be reached from here, or another cluster answers.
        """
        if cluster in self._failed:
            raise BrokerError(self._failed[cluster])
        if cluster not in self._open:
            try:
                reader = ClusterReader(connection.load(), timeout_s)
                self._open[cluster] = reader.__enter__()
                check_cluster(reader, cluster)
            except (BrokerError, SettingsError) as error:
                self._failed[cluster] = str(error)
                raise BrokerError(str(error)) from None
        return self._open[cluster]

    def only(self) -> ClusterReader:
        """Return the reader of the only cluster; see :meth:`get`."""
        (cluster,) = self._jobs
        return self.get(cluster)
