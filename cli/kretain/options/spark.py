"""The options of ``--spark``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from kretain.errors import UsageError
from kretain.options.common import OptionGroup, option

SPARK = "Spark"


@dataclass(frozen=True, slots=True)
class SparkFlags(OptionGroup):
    """Whether to run over Spark, and how."""

    spark: Annotated[
        bool,
        option(
            "--spark",
            panel=SPARK,
            help="Analyze over Spark; this process deletes.",
        ),
    ] = False
    master: Annotated[
        str | None,
        option(
            "--master",
            metavar="MASTER",
            panel=SPARK,
            help="Use this master. Default: Spark's, or local.",
        ),
    ] = None
    spark_conf: Annotated[
        list[str] | None,
        option("--spark-conf", metavar="KEY=VALUE", panel=SPARK, help="Set a Spark option. Repeatable."),
    ] = None
    executor_command_config: Annotated[
        str | None,
        option(
            "--executor-command-config",
            metavar="FILE",
            panel=SPARK,
            help="Read client settings here on executors.",
        ),
    ] = None
    connections_per_broker: Annotated[
        int | None,
        option(
            "--connections-per-broker",
            metavar="N",
            min=1,
            panel=SPARK,
            help="Limit tasks per broker. Default: 2.",
        ),
    ] = None
    partitions_per_task: Annotated[
        int | None,
        option(
            "--partitions-per-task",
            metavar="N",
            min=0,
            panel=SPARK,
            help="Cut larger clusters. Default: 300000.",
        ),
    ] = None

    def check(self) -> None:
        """Check that Spark's options are valid, and given only with ``--spark``.

        Raises:
            UsageError: ``--spark`` is missing, or a setting is not KEY=VALUE.
            MissingPartError: PySpark, or what it needs, is not installed.
        """
        given = {
            "--spark-conf": self.spark_conf,
            "--executor-command-config": self.executor_command_config,
            "--connections-per-broker": self.connections_per_broker,
            "--partitions-per-task": self.partitions_per_task,
        }
        for name, value in given.items():
            if value is not None and not self.spark:
                raise UsageError(f"{name} needs --spark")
        self.conf()
        if self.spark:
            from retention_cli.core.extras import require_spark

            require_spark()

    @property
    def connections(self) -> int:
        """How many tasks may read from one broker at a time."""
        from retention_cli.engines.spark.plans import CONNECTIONS

        return CONNECTIONS if self.connections_per_broker is None else self.connections_per_broker

    @property
    def a_task(self) -> int:
        """The most partitions that one task plans."""
        from retention_cli.engines.spark.plans import PARTITIONS_A_TASK

        return PARTITIONS_A_TASK if self.partitions_per_task is None else self.partitions_per_task

    def conf(self) -> dict[str, str]:
        """Return the given Spark settings."""
        found = {}
        for one in self.spark_conf or ():
            key, equals, value = one.partition("=")
            if not equals or not key.startswith("spark."):
                raise UsageError(f"--spark-conf {key}: is not spark.….=VALUE")
            found[key] = value
        return found
