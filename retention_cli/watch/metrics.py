"""The status as metrics (docs/metrics.md), by prometheus_client. Series of what is gone are gone at once."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from retention_cli import __version__
from retention_cli.core.extras import part
from retention_cli.core.printable import printable

if TYPE_CHECKING:
    from retention_cli.watch.board import Board

_METRICS: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "build_info": ("Version of kretain and of Python; always 1.", ("version", "python")),
    "last_success_timestamp_seconds": ("When a pass last did all it should.", ()),
    "plan_timestamp_seconds": ("When the last plan was made.", ()),
    "pass_duration_seconds": ("How long the last pass took.", ()),
    "leader": ("Whether this instance is the one that trims.", ()),
    "policy_valid": ("Whether the policy file is valid now.", ()),
    "trimmed_records_total": ("Records trimmed by this process.", ()),
    "trimmed_bytes_total": ("Bytes trimmed by this process, as far as known.", ()),
    "failures_total": ("What went wrong, by kind.", ("kind",)),
    "partitions": ("Managed partitions by what the last plan decided.", ("action",)),
    "trimmable_records": ("Records that the last plan would trim.", ()),
    "trimmable_bytes": ("Bytes that the last plan would trim; absent if a size is unknown.", ()),
    "holds": ("Partitions on hold in the last plan, by reason code.", ("code",)),
    "group_lag_records": ("Unread records of the partitions whose floor this consumer sets.", ("group",)),
    "group_seconds_to_loss": (
        "How long at least until R4, R6 or the brokers take what this consumer has not read.",
        ("group", "topic"),
    ),
    "protected_settings": ("Settings of topics that are raised now, as required groups have not read (P1).", ()),
    "protect_changes_total": ("Settings of topics that this process has raised, lowered or restored.", ()),
    "disk_usage_ratio": ("Share of a log dir's volume in use, before the plan.", ("broker", "log_dir")),
    "disk_ceiling_ratio": ("The policy's ceiling for disks (R6).", ()),
}
"""Every metric, without ``kretain_``: what it says, and its labels beside ``cluster``."""
NAMES: Final = tuple(f"kretain_{name}" for name in _METRICS)
"""Every metric, as it is called in a query."""


def registry_of(board: Board) -> Any:
    """Return a registry of its own, whose only collector reads the board."""
    registry = part("metrics", "prometheus_client").CollectorRegistry()
    registry.register(_Collector(board))
    return registry


def as_text(registry: Any) -> str:
    """Return the metrics in Prometheus' text format, as node_exporter's textfile collector reads it."""
    return str(part("metrics", "prometheus_client").generate_latest(registry).decode("utf-8"))


class _Collector:
    """Makes all series from one status."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def describe(self) -> Iterator[Any]:
        """Yield each family without series: by these names ``?name[]=`` finds it."""
        return map(_family, _METRICS)

    def collect(self) -> Iterator[Any]:
        now, cluster = self._board, printable(self._board.cluster)
        found: dict[str, Mapping[Any, float | None]] = {
            "build_info": {(__version__, platform.python_version()): 1},
            "last_success_timestamp_seconds": {(): now.last_success_s},
            "plan_timestamp_seconds": {(): now.planned_s},
            "pass_duration_seconds": {(): now.pass_s},
            "leader": {(): float(now.leads())},
            "policy_valid": {(): float(now.policy_valid())},
            "trimmed_records_total": {(): now.trimmed_records},
            "trimmed_bytes_total": {(): now.trimmed_bytes},
            "failures_total": _by_label(now.failures),
            "protected_settings": {(): now.protected},
            "protect_changes_total": {(): now.protect_changes},
        }
        if (values := now.measured) is not None:
            found |= {
                "partitions": _by_label(values.actions),
                "trimmable_records": {(): values.records},
                "trimmable_bytes": {(): values.size_bytes},
                "holds": _by_label(values.holds),
                "group_lag_records": _by_label(values.groups.lag),
                "group_seconds_to_loss": values.groups.loss,
                "disk_usage_ratio": values.disks,
                "disk_ceiling_ratio": {(): values.ceiling},
            }
        for name, series in found.items():
            family = _family(name)
            for labels, value in series.items():
                if value is not None:
                    family.add_metric([cluster, *labels], value)
            yield family


def _family(name: str) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    text, labels = _METRICS[name]
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(f"kretain_{name}", text, labels=["cluster", *labels])


def _by_label(values: Mapping[str, float]) -> Mapping[tuple[str], float]:
    return {(label,): value for label, value in values.items()}
