"""The base of the data sources: options, the filters that Spark pushes down, and reading in slices."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from retention_cli.brokers.errors import SettingsError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.client_files import Setting, read_properties, translate
from retention_cli.core.units import parse_duration_ms
from retention_cli.engines.spark.connections import check_cluster
from retention_cli.engines.spark.schemas import ddl
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
class Pushed:
    """The rows that filters leave to read: a column's wanted values, and a number's bounds."""

    values: dict[str, frozenset[Any]] = field(default_factory=dict)
    lowest: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)

    def take(self, filters: Sequence[Any], columns: Sequence[str]) -> Iterable[Any]:
        """Keep the filters that can be used; return all of them, so that Spark applies them, too.

        Filters are recognized by class name: PySpark has them since 4.1; before, nothing is pushed down.
        """
        for one in filters:
            name, value = ".".join(getattr(one, "attribute", ())), getattr(one, "value", ())
            if name not in columns:
                continue
            match type(one).__name__:
                case "EqualTo":
                    self._only(name, [value])
                case "In":
                    self._only(name, value)
                case ("GreaterThan" | "GreaterThanOrEqual") as kind if isinstance(value, int):
                    low = value + (kind == "GreaterThan")
                    self.lowest[name] = max(low, self.lowest.get(name, low))
                case ("LessThan" | "LessThanOrEqual") as kind if isinstance(value, int):
                    end = value + (kind == "LessThanOrEqual")
                    self.ends[name] = min(end, self.ends.get(name, end))
        return filters

    def _only(self, name: str, values: Iterable[Any]) -> None:
        wanted = frozenset(values)
        self.values[name] = self.values.get(name, wanted) & wanted

    def allows(self, column: str, value: Any) -> bool:
        """Return whether rows with this value are wanted."""
        return column not in self.values or value in self.values[column]

    def bounds(self, column: str) -> tuple[int | None, int | None]:
        """Return a column's smallest wanted number, and the exclusive upper bound; None: unbounded."""
        low, end = self.lowest.get(column), self.ends.get(column)
        if numbers := [one for one in self.values.get(column, ()) if isinstance(one, int)]:
            least, most = min(numbers), max(numbers) + 1
            low, end = least if low is None else max(low, least), most if end is None else min(end, most)
        return low, end


@dataclass
class Slice(InputPartition):  # type: ignore[misc]  # (PySpark ships no types that we follow)
    """The part of one cluster that one task reads."""

    cluster: str

    def __post_init__(self) -> None:
        super().__init__(None)


class SlicedReader(DataSourceReader):  # type: ignore[misc]  # (PySpark ships no types that we follow)
    """Reads slices, only those that filters leave. ``pushed_columns`` are the columns whose filters it can use."""

    pushed_columns: ClassVar[tuple[str, ...]] = ()

    def __init__(self, options: Options) -> None:
        self.options = options
        self.pushed = Pushed()

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802  (Spark's own name)
        """Keep the filters, so that only the rows they leave are read; return those that Spark must apply, too."""
        return self.pushed.take(filters, self.pushed_columns)

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
