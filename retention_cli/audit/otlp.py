"""A copy of the audit log as OpenTelemetry log records, sent to a collector by OTLP/HTTP in JSON (docs/audit.md).

The encoding is that of ExportLogsServiceRequest (OTLP 1.0, stable): 64-bit integers are decimal strings. The Python SDK
is not used: its logs are a private, changing interface, and its exporters don't say what became of a record.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Sequence
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import Any, Final

from retention_cli import __version__
from retention_cli.audit import copies
from retention_cli.audit.chain import moment_of
from retention_cli.audit.copies import Line
from retention_cli.audit.log import AuditLog
from retention_cli.core.files import read_file
from retention_cli.core.http import HttpError, ask
from retention_cli.core.state_dir import StateError

SHIPPED_NAME: Final = "audit.shipped.otlp"
_INFO: Final = 9
_LONGEST: Final = 65_536


class OtlpError(Exception):
    """The collector did not take the lines; the text says why."""


def export(log: AuditLog, url: str, auth_file: str, cluster_id: str, timeout_s: float, deadline: float) -> str | None:
    """Send the lines that the collector lacks, in order, and wait for its answers. Redirects are not followed.

    Only the holder of the trim lock may call it. Lines may be sent twice, after a crash or a lost answer. Return why
    lines are left for the next trim, or were refused for good; None if the collector has all.

    Args:
        log: the log.
        url: where a POST goes, such as http://127.0.0.1:4318/v1/logs.
        auth_file: a file with the value of the header Authorization, empty for none.
        cluster_id: the cluster that the log is about.
        timeout_s: the time-out of a request.
        deadline: when all of them are over (of ``time.monotonic``).
    """
    folder, place = log.path.parent, {"otlp": url}
    refused, sent = 0, False
    try:
        headers = {"Content-Type": "application/json", "User-Agent": f"kretain/{__version__}", **_auth(auth_file)}
        unsent = copies.unsent(log, copies.reached_by(folder, SHIPPED_NAME, place))
        while lines := list(islice(unsent, copies.AT_ONCE)):
            left_s = deadline - time.monotonic()
            if sent and left_s <= 0:
                return f"{url} lacks lines after {copies.MOST_S:g} s: the next trim goes on with them"
            refused += _post(
                url, json.dumps(request_of(lines, cluster_id)).encode(), headers, min(timeout_s, max(1.0, left_s))
            )
            sent = True
            copies.remember(folder, SHIPPED_NAME, place, lines)
    except (OtlpError, StateError) as error:
        return f"{error}; the next trim sends the lines that {url} lacks"
    return f"{url} refused {refused:,} of the lines for good: they are in the log alone" if refused else None


def request_of(lines: Sequence[Line], cluster_id: str) -> dict[str, Any]:
    """Return an ExportLogsServiceRequest: a log record a line, whose body is the line as it is in the log."""
    about = {"service.name": "kretain", "service.version": __version__, "kretain.cluster.id": cluster_id}
    scope = {"scope": {"name": "kretain.audit", "version": __version__}, "logRecords": [_record(one) for one in lines]}
    return {"resourceLogs": [{"resource": {"attributes": _attributes(about)}, "scopeLogs": [scope]}]}


def _record(line: Line) -> dict[str, Any]:
    event = line.event.get("event")
    values: dict[str, str | int] = {"kretain.run": line.run}
    values |= {"event.name": f"kretain.audit.{event}"} if isinstance(event, str) else {}
    values |= {"kretain.seq": line.link.seq} if line.link is not None else {}
    moment = moment_of(line.event)
    return {
        **({} if moment is None else {"timeUnixNano": str(_nanoseconds(moment))}),
        "observedTimeUnixNano": str(time.time_ns()),
        "severityNumber": _INFO,
        "severityText": "INFO",
        "body": {"stringValue": line.value.decode("utf-8", "replace")},
        "attributes": _attributes(values),
    }


def _attributes(values: dict[str, str | int] | dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}}
        for key, value in values.items()
    ]


def _nanoseconds(moment: str) -> int:
    try:
        since = dt.datetime.fromisoformat(moment) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    except ValueError:  # a 31st of February, in a line that was edited
        return 0
    return since // dt.timedelta(milliseconds=1) * 1_000_000


def _auth(path: str) -> dict[str, str]:
    if not path:
        return {}
    try:
        value = read_file(Path(path), pipes=True).decode("ascii").strip()
    except OSError as error:
        raise OtlpError(f"otlp.auth.file {path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        value = ""
    if not value or not value.isprintable():
        raise OtlpError(f"otlp.auth.file {path} is not one line of ASCII, such as Bearer TOKEN")
    return {"Authorization": value}


def _post(url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> int:
    """Send a request, and return how many of its records the collector refuses for good.

    Raises:
        OtlpError: it did not take them.
    """
    try:
        answer = ask(
            url,
            timeout_s=timeout_s,
            most_bytes=_LONGEST,
            body=body,
            headers=headers,
            redirects=False,  # the token is for that address, and so is the log
            proxies=False,
        )
    except HttpError as error:
        raise OtlpError(f"{url} can't be reached: {error}") from None
    if answer.status != HTTPStatus.OK:
        raise OtlpError(f"{url} answered with HTTP status {answer.status}")
    return _refused(answer.body)


def _refused(said: bytes) -> int:
    """Return the number of rejected records of an ExportLogsServiceResponse; an answer without one has none."""
    try:
        return max(0, int(json.loads(said)["partialSuccess"]["rejectedLogRecords"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0
