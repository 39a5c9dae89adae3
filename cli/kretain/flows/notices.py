"""Post what a trim did, or why it failed, to the webhook of the policy's ``notify``."""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kretain.errors import RefusedError, line_of, warn
from retention_cli.core.errors import Refusal

if TYPE_CHECKING:
    from retention_cli.policy.urls import NotifyRules
    from retention_cli.trim.report import TrimReport


@contextlib.contextmanager
def notified(rules: NotifyRules, name: str, *, dry_run: bool) -> Iterator[Callable[[TrimReport], None]]:
    """Yield what posts a report; post an error that ends the block. ``name`` is the cluster's.

    A dry run posts nothing, nor does a trim that the user did not confirm. The process's end waits for the posts.
    """
    from retention_cli.watch.notify import Notice, Notifier, of_report

    if dry_run or not rules.url:
        yield lambda _report: None
        return
    notifier = Notifier(name, lambda text: warn(f"{text}"))
    atexit.register(notifier.close)

    def note(report: TrimReport) -> None:
        for notice in of_report(report):
            notifier.post(rules, notice)

    try:
        yield note
    except Exception as error:
        if not isinstance(error, RefusedError):
            notifier.post(rules, Notice("refused" if isinstance(error, Refusal) else "failed", line_of(error)))
        raise
