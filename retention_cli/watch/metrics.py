"""The status as metrics (docs/watch.md, Metrics), by prometheus_client. Series of what is gone are gone at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from retention_cli.core.extras import prometheus
from retention_cli.core.printable import printable

if TYPE_CHECKING:
    from retention_cli.watch.board import Board

NAMES: Final = (
    "kretain_last_success_timestamp_seconds",
    "kretain_plan_timestamp_seconds",
    "kretain_pass_duration_seconds",
    "kretain_leader",
    "kretain_policy_valid",
    "kretain_partitions",
    "kretain_holds",
    "kretain_trimmed_records_total",
    "kretain_trimmed_bytes_total",
    "kretain_group_lag_records",
    "kretain_group_seconds_to_loss",
    "kretain_disk_usage_ratio",
    "kretain_disk_ceiling_ratio",
    "kretain_failures_total",
)
"""Every metric, as it is called in a query."""


def registry_of(board: Board) -> Any:
    """Return a registry of its own, whose only collector reads the board."""
    registry = prometheus().CollectorRegistry()
    registry.register(_Collector(board))
    return registry


def as_text(registry: Any) -> str:
    """Return the metrics in Prometheus' text format, as node_exporter's textfile collector reads it."""
    return str(prometheus().generate_latest(registry).decode("utf-8"))


class _Collector:
    """Makes all series from one status."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def describe(self) -> Iterator[Any]:
        """Yield each family without series: by these names ``?name[]=`` finds it."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name in NAMES:
            counted = name.endswith("_total")
            yield CounterMetricFamily(name, "") if counted else GaugeMetricFamily(name, "")

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now = self._board.status
        cluster = printable(now.cluster)

        def gauge(name: str, text: str, labels: Sequence[str], rows: Sequence[tuple[Sequence[str], float]]) -> Any:
            family = GaugeMetricFamily(f"kretain_{name}", text, labels=["cluster", *labels])
            for values, value in rows:
                family.add_metric([cluster, *values], value)
            return family

        def counter(name: str, text: str, labels: Sequence[str], rows: Sequence[tuple[Sequence[str], float]]) -> Any:
            family = CounterMetricFamily(f"kretain_{name}", text, labels=["cluster", *labels])
            for values, value in rows:
                family.add_metric([cluster, *values], value)
            return family

        def one(value: float | None) -> list[tuple[Sequence[str], float]]:
            return [] if value is None else [((), value)]

        yield gauge(
            "last_success_timestamp_seconds", "When a pass last did all it should.", (), one(now.last_success_s)
        )
        yield gauge("plan_timestamp_seconds", "When the last plan was made.", (), one(now.planned_s))
        yield gauge("pass_duration_seconds", "How long the last pass took.", (), one(now.pass_s))
        yield gauge("leader", "Whether this instance is the one that trims.", (), one(float(self._board.leads())))
        yield gauge(
            "policy_valid",
            "Whether the policy file can be used as it is now.",
            (),
            one(float(self._board.policy_valid())),
        )
        yield counter("trimmed_records", "Records trimmed by this process.", (), one(now.trimmed_records))
        yield counter("trimmed_bytes", "Bytes trimmed by this process, as far as known.", (), one(now.trimmed_bytes))
        yield counter(
            "failures", "What went wrong, by kind.", ("kind",), [((kind,), n) for kind, n in now.failures.items()]
        )
        if (values := now.measured) is None:
            return
        yield gauge(
            "partitions",
            "Managed partitions by what the last plan decided.",
            ("action",),
            [((action,), n) for action, n in values.actions.items()],
        )
        yield gauge(
            "holds",
            "Partitions on hold in the last plan, by reason code.",
            ("code",),
            [((code,), n) for code, n in values.holds.items()],
        )
        yield gauge(
            "group_lag_records",
            "Unread records of the partitions whose floor this consumer sets.",
            ("group",),
            [((group,), n) for group, n in values.groups.lag.items()],
        )
        yield gauge(
            "group_seconds_to_loss",
            "How long at least until R4, R6 or the brokers take what this consumer has not read.",
            ("group", "topic"),
            list(values.groups.loss.items()),
        )
        yield gauge(
            "disk_usage_ratio",
            "Share of a log dir's volume in use, before the plan.",
            ("broker", "log_dir"),
            list(values.disks.items()),
        )
        yield gauge("disk_ceiling_ratio", "The policy's ceiling for disks (R6).", (), one(values.ceiling))
