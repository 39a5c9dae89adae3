"""The base of the data sources: options, and reading in slices."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from retention_cli.brokers.errors import SettingsError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.client_files import Setting, read_properties, translate
from retention_cli.core.units import parse_duration_ms
from retention_cli.engines.spark.connections import check_cluster
from retention_cli.engines.spark.frames import ddl
from retention_cli.policy.model import matches

_COMMON: Final = ("bootstrap.servers", "command.config", "topics", "timeout", "path")


@dataclass(frozen=True)
class Options:
    """A source's validated options. ``topics`` is empty if the option is not set; ``own`` are the source's own."""

    bootstrap: str | None
    command_config: str | None
    topics: tuple[str, ...]
    timeout_s: float
    own: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str], *own: str) -> Options:
        """Parse the options; ``own`` are the names of those that only this source has.

        Raises:
            SettingsError: an option is unknown or invalid.
            UnitError: a value can't be parsed.
        """
        given = {key.lower(): value for key, value in options.items()}
        known = {*_COMMON, *own}
        if unknown := given.keys() - known:
            raise SettingsError(f"unknown option {min(unknown)!r}; options are {', '.join(sorted(known))}")
        if "bootstrap.servers" not in given and "command.config" not in given:
            raise SettingsError("option bootstrap.servers, or a command.config that has it, is needed")
        return cls(
            bootstrap=given.get("bootstrap.servers"),
            command_config=given.get("command.config"),
            topics=comma_separated(given.get("topics", "")),
            timeout_s=parse_duration_ms(given.get("timeout", "30s")) / 1000,
            own={name: given[name] for name in own if name in given},
        )

    def reader(self) -> ClusterReader:
        """Return an unopened reader; the file is read on the machine that calls this."""
        settings = {} if self.command_config is None else read_properties(Path(self.command_config))
        if self.bootstrap is not None:
            settings |= {"bootstrap.servers": Setting(self.bootstrap, "option")}
        return ClusterReader(translate(settings), self.timeout_s)

    @contextmanager
    def reader_at(self, cluster: str) -> Iterator[ClusterReader]:
        """Open a reader on an executor, of the cluster that the driver reached.

        Raises:
            BrokerError: the cluster can't be reached from here, or another cluster answers.
        """
        with self.reader() as reader:
            check_cluster(reader, cluster)
            yield reader

    def takes(self, topic: str) -> bool:
        """Return whether the option ``topics`` includes a topic."""
        return not self.topics or matches(self.topics, topic)

    def deadline(self) -> float:
        """Return the time (of ``time.monotonic``) by which a request made now must be answered."""
        return time.monotonic() + self.timeout_s


def comma_separated(text: str) -> tuple[str, ...]:
    """Return the comma-separated items."""
    return tuple(one.strip() for one in text.split(",") if one.strip())


@dataclass
class Slice(InputPartition):  # type: ignore[misc]  # (PySpark ships no types that we follow)
    """The part of one cluster that one task reads."""

    cluster: str

    def __post_init__(self) -> None:
        super().__init__(None)


class SlicedReader(DataSourceReader):  # type: ignore[misc]  # (PySpark ships no types that we follow)
    """Reads slices."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one slice. If there was nothing to cut, Spark makes a slice of its own, which is empty."""
        return self.read_slice(partition) if isinstance(partition, Slice) else iter(())

    def read_slice(self, one: Any) -> Iterator[Any]:
        """Yield a slice's Arrow batches."""
        raise NotImplementedError


class SlicedSource(DataSource):  # type: ignore[misc]  # (PySpark ships no types that we follow)
    """A format of rows that tasks read in slices, with options of its ``own`` in addition to the common ones."""

    format_name: ClassVar[str]
    columns: ClassVar[pa.Schema]
    slices: ClassVar[type[SlicedReader]]
    own: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return cls.format_name

    def schema(self) -> str:
        """Return the columns in Spark's type syntax."""
        return ddl(self.columns)

    def reader(self, schema: Any) -> DataSourceReader:
        """Return a reader for the options."""
        del schema
        return self.slices(Options.of(self.options, *self.own))
