"""Post what a trim or a run of protect did, where the policy says (``notify``)."""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable, Iterator

from kretain.errors import RefusedError, line_of, warn
from retention_cli.core.errors import Refusal
from retention_cli.policy.urls import NotifyRules
from retention_cli.protect.decision import Protection
from retention_cli.trim.report import TrimReport
from retention_cli.watch.notify import Notice, Notifier, of_protection, of_report


@contextlib.contextmanager
def notified(notify: NotifyRules, name: str, *, dry_run: bool) -> Iterator[Callable[[TrimReport | Protection], None]]:
    """Yield what posts a report; post an error that ends the block. ``name`` is the cluster's.

    A dry run posts nothing, nor does what the user did not confirm. The process's end waits for the posts.
    """
    if dry_run or not notify.url:
        yield lambda _report: None
        return
    notifier = Notifier(name, warn)
    atexit.register(notifier.close)

    def note(report: TrimReport | Protection) -> None:
        for notice in of_report(report) if isinstance(report, TrimReport) else of_protection(report):
            notifier.post(notify, notice)

    try:
        yield note
    except Exception as error:
        if not isinstance(error, RefusedError):
            notifier.post(notify, Notice("refused" if isinstance(error, Refusal) else "failed", line_of(error)))
        raise
