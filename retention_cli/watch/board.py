"""What the loop publishes: its log, the kinds of failures that it counts, and the board that threads serve.

``/metrics`` (docs/metrics.md), by prometheus_client, ``/healthz`` and ``/readyz``. A group's or a topic's series end at
once when it is gone.
"""

from __future__ import annotations

import contextlib
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from retention_cli import __version__
from retention_cli.brokers.errors import BrokerError, UnauthorizedError, UnreachableError
from retention_cli.core.errors import Refusal
from retention_cli.core.extras import part
from retention_cli.core.printable import printable
from retention_cli.core.state_dir import LockedError, StateError
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.selection import NothingMatchesError
from retention_cli.watch.measured import Series

READY_INTERVALS: Final = 3
"""How many intervals old the last success may be."""
STUCK_S: Final = 900.0
"""How long a pass may make no progress before the loop counts as dead (s); at least three intervals."""


KINDS: Final = (
    *("broker", "unreachable", "unauthorized", "policy", "state", "locked", "refused", "partition", "election"),
    *("protect", "textfile", "shipping", "system", "other"),
)
"""Every value of the label ``kind`` (docs/metrics.md)."""

_OF_CLASS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (UnreachableError, "unreachable"),
    (UnauthorizedError, "unauthorized"),
    (BrokerError, "broker"),
    (PolicyError, "policy"),
    (NothingMatchesError, "policy"),
    (LockedError, "locked"),
    (Refusal, "refused"),
    (StateError, "state"),
    (OSError, "system"),
)


def kind_of(error: Exception) -> str | None:
    """Return an error's kind; None for a defect of kretain, which a later pass would meet again."""
    ours = type(error).__module__.startswith(("retention_cli.", "kretain."))
    return next((name for kind, name in _OF_CLASS if isinstance(error, kind)), "other" if ours else None)


class Say(Protocol):
    """Prints a line of the log (docs/watch.md, The log as JSON).

    ``event`` is what kind of line it is, ``facts`` are the other keys that it has as JSON.
    """

    def __call__(self, text: str, event: str = "note", /, **facts: object) -> None:
        """Print it."""


@dataclass(slots=True)
class Board:
    """Everything that metrics show, and how alive the loop is. The loop alone writes; counters count since it began.

    Args:
        interval_s: the time between passes (s).
        leads: returns whether this instance leads now.
        policy_valid: returns whether the policy file was right when it was last read.
        cluster: the cluster's id, empty until it is known.
        measured: the last plan's series, by metric.
        planned_s: when that was made (Unix time).
        protected: how many settings are raised now, None if that was not looked at.
    """

    interval_s: float
    leads: Callable[[], bool]
    policy_valid: Callable[[], bool]
    cluster: str = ""
    last_success_s: float | None = None
    pass_s: float | None = None
    measured: Mapping[str, Series] = field(default_factory=dict)
    planned_s: float | None = None
    trimmed_records: int = 0
    trimmed_bytes: int = 0
    protected: int | None = None
    protect_changes: int = 0
    failures: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    _ticked: float = field(init=False)
    _succeeded: float | None = None

    def __post_init__(self) -> None:
        self.tick()

    def fail(self, kind: str, times: int = 1) -> None:
        """Count failures of a kind."""
        self.failures = {**self.failures, kind: self.failures[kind] + times}  # others read it meanwhile

    def succeed(self, now_s: float) -> None:
        """Record a pass that did all it should. ``now_s`` is Unix time."""
        self._succeeded = time.monotonic()
        self.last_success_s = now_s

    def tick(self, phase: str = "", done: int = 0, total: int | None = None) -> None:
        """Record that the loop is alive; also a :class:`~retention_cli.core.progress.Progress`."""
        del phase, done, total
        self._ticked = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether the loop has made progress recently."""
        return time.monotonic() - self._ticked < max(STUCK_S, READY_INTERVALS * self.interval_s)

    @property
    def unready(self) -> str | None:
        """Why it is not ready: no pass has succeeded yet, or none within three intervals; None if it is."""
        if self._succeeded is None:
            return "no pass has succeeded yet"
        age = time.monotonic() - self._succeeded
        if age < READY_INTERVALS * self.interval_s + max(60.0, self.pass_s or 0.0):
            return None
        return f"the last pass that succeeded was {age:.0f} s ago"


_AT_ONCE: Final = 16
_MOST_S: Final = 15.0
"""The time for one request, from when it is connected: a client that drips would renew a socket's own time-out."""
_TEXT: Final = ("Content-Type", "text/plain; charset=utf-8")


class ListenError(Exception):
    """The address can't be listened on."""


class Server(ThreadingMixIn, WSGIServer):
    """Listens from its creation until it is closed.

    One thread per request, so that a slow client does not keep health checks waiting; at most a few. If too many are
    under way, the one that has waited longest makes room: a health check always gets through.

    Args:
        host: the address to bind to.
        port: the port; 0: any free one.
        board: what to show.

    Raises:
        ListenError: the address can't be bound.
        MissingPartError: prometheus_client is not installed.
    """

    request_queue_size = 32
    daemon_threads = True

    def __init__(self, host: str, port: int, board: Board) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Any, float] = {}  # when each connection began (time.monotonic), the oldest first
        app = _app(board)
        try:
            self.address_family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            super().__init__((str(address[0]), int(address[1])), _Handler)
        except (OSError, OverflowError) as error:
            raise ListenError(
                f"--listen {host}:{port}: {getattr(error, 'strerror', None) or error}; choose another with --listen"
            ) from None
        self.set_app(app)
        self._thread = threading.Thread(target=self.serve_forever, name="kretain-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self.shutdown()
        self.server_close()
        self._thread.join(5)

    def server_bind(self) -> None:
        """Bind without a name server's help, which WSGIServer asks for its own name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own."""
        with self._lock:
            if len(self._under_way) >= _AT_ONCE:
                self._end(next(iter(self._under_way)))
            self._under_way[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, which is no longer under way."""
        with self._lock:
            self._under_way.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End what takes too long. Called twice a second."""
        late = time.monotonic() - _MOST_S
        with self._lock:
            for request in [one for one, began in self._under_way.items() if began < late]:
                self._end(request)

    def _end(self, request: Any) -> None:
        """Shut a connection down: its thread ends by that. Hold the lock."""
        del self._under_way[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: what a client does wrong is its own business, and so is that it is gone."""


class _Handler(WSGIRequestHandler):
    timeout = 10

    def address_string(self) -> str:
        return str(self.client_address[0])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        del format, args


def _app(board: Board) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    metrics = part("metrics", "prometheus_client").make_wsgi_app(registry_of(board))

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/metrics":
                return metrics(environ, start_response)  # type: ignore[no-any-return]
            case "/healthz":
                problem = None if board.alive else "the loop is stuck"
            case "/readyz":
                problem = board.unready
            case _:
                start_response("404 Not Found", [_TEXT])  # a list of its own: the server adds to it
                return [b"/metrics, /healthz, /readyz\n"]
        start_response("200 OK" if problem is None else "503 Service Unavailable", [_TEXT])
        return [f"{problem or 'ok'}\n".encode()]

    return app


_METRICS: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "build_info": ("Version of kretain and of Python; always 1.", ("version", "python")),
    "last_success_timestamp_seconds": ("When a pass last succeeded.", ()),
    "plan_timestamp_seconds": ("When the last plan was made.", ()),
    "pass_duration_seconds": ("How long the last pass took.", ()),
    "leader": ("Whether this instance trims.", ()),
    "policy_valid": ("Whether the policy file is valid now.", ()),
    "trimmed_records_total": ("Records trimmed by this process.", ()),
    "trimmed_bytes_total": ("Bytes trimmed by this process, where known.", ()),
    "failures_total": ("What went wrong, by kind.", ("kind",)),
    "partitions": ("Managed partitions by what the last plan decided.", ("action",)),
    "trimmable_records": ("Records that the last plan would trim.", ()),
    "trimmable_bytes": ("Bytes that the last plan would trim; absent if a size is unknown.", ()),
    "holds": ("Partitions on hold in the last plan, by reason code.", ("code",)),
    "group_lag_records": ("Unread records of the partitions whose floor this consumer sets.", ("group",)),
    "group_seconds_to_loss": (
        "Least time until R4, R6 or the brokers delete records that this consumer has not read.",
        ("group", "topic"),
    ),
    "protected_settings": ("Topic settings that are raised now because required groups lag (P1).", ()),
    "protect_changes_total": ("Topic settings that this process raised, lowered or restored.", ()),
    "disk_usage_ratio": ("Share of a log dir's volume in use, before the plan.", ("broker", "log_dir")),
    "disk_ceiling_ratio": ("The policy's ceiling for disks (R6).", ()),
}
"""Every metric, without ``kretain_``: what it says, and its labels besides ``cluster``."""
NAMES: Final = tuple(f"kretain_{name}" for name in _METRICS)
"""Every metric, by its name in queries."""


def registry_of(board: Board) -> Any:
    """Return a registry of its own, whose only collector reads the board."""
    registry = part("metrics", "prometheus_client").CollectorRegistry()
    registry.register(_Collector(board))
    return registry


def as_text(registry: Any) -> str:
    """Return the metrics in Prometheus' text format, as node_exporter's textfile collector reads it."""
    return str(part("metrics", "prometheus_client").generate_latest(registry).decode("utf-8"))


class _Collector:
    def __init__(self, board: Board) -> None:
        self._board = board

    def describe(self) -> Iterator[Any]:
        """Yield each family without series: by these names ``?name[]=`` finds it."""
        return map(_family, _METRICS)

    def collect(self) -> Iterator[Any]:
        now, cluster = self._board, printable(self._board.cluster)
        found: Mapping[str, Series] = {
            "build_info": {(__version__, platform.python_version()): 1},
            "last_success_timestamp_seconds": {(): now.last_success_s},
            "plan_timestamp_seconds": {(): now.planned_s},
            "pass_duration_seconds": {(): now.pass_s},
            "leader": {(): float(now.leads())},
            "policy_valid": {(): float(now.policy_valid())},
            "trimmed_records_total": {(): now.trimmed_records},
            "trimmed_bytes_total": {(): now.trimmed_bytes},
            "failures_total": {(kind,): times for kind, times in now.failures.items()},
            "protected_settings": {(): now.protected},
            "protect_changes_total": {(): now.protect_changes},
            **now.measured,
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
