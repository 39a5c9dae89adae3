"""The policy's ``notify``: where to post what kretain did, and what. The URL is a secret: no error repeats it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

from retention_cli.core.files import read_file

Event = Literal["trimmed", "held", "refused", "failed"]
EVENTS: Final[tuple[Event, ...]] = get_args(Event)
_WRITE: Final = "write https://…, env:NAME or file:PATH"


class WebhookError(ValueError):
    """The webhook's URL is not usable; the text quotes no part of it."""


@dataclass(frozen=True, slots=True)
class NotifyRules:
    """What the policy says of notifications.

    ``url`` is an address, ``env:NAME`` or ``file:PATH``; empty: none. ``folder`` is what a relative PATH starts from.
    """

    url: str = field(default="", repr=False)
    events: tuple[Event, ...] = EVENTS
    folder: Path = field(default_factory=Path)

    def address(self) -> str:
        """Return the webhook's URL, read from its variable or file.

        Raises:
            WebhookError: it is missing, or not a URL.
        """
        kind, _, name = self.url.partition(":")
        if kind == "env":
            if name not in os.environ:
                raise WebhookError(f"notify.url: the variable {name} is not set")
            return _checked(os.environ[name].strip(), f"notify.url: the variable {name}")
        if kind == "file":
            try:
                text = read_file(self.folder / name).decode("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "is not text"
                raise WebhookError(f"notify.url: {self.folder / name}: {why}") from None
            return _checked(text, f"notify.url: {self.folder / name}")
        return self.url


def read_webhook(value: object) -> str:
    """Return ``notify.url`` as the file has it.

    Raises:
        WebhookError: it is neither a URL nor the place of one.
    """
    if not isinstance(value, str):
        raise WebhookError(f"is not text: {_WRITE}")
    kind, _, name = value.partition(":")
    if kind in ("env", "file"):
        if not name or not name.isprintable() or name.startswith("//"):
            raise WebhookError(f"names no {'variable' if kind == 'env' else 'file'}: {_WRITE}")
        return value
    return _checked(value, "")


def _checked(url: str, where: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not re.fullmatch(r"[!-~]+", url) or "@" in parts.netloc:  # a password would not be sent
        raise WebhookError(f"{where} is not a webhook's URL: {_WRITE}".lstrip())
    return url
