"""The URLs that a policy names: an archive's, with never a secret in it, and a webhook's, which is a secret itself.

An archive's URL appears in plans, reports, the audit log and error texts. So anything that could be a password is
refused before it is repeated, and an error names parts of a URL, never all of it. A webhook's is never repeated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args
from urllib.parse import parse_qsl, urlsplit

from retention_cli.core.files import beside, read_file
from retention_cli.core.printable import plain

NONE: Final = "none"
"""The word that turns off an archive that an earlier entry set."""
SCHEMES: Final = {"file": "host", "s3": "bucket", "hdfs": "name node", "viewfs": "name node", "gs": "bucket"} | {
    "abfs": "container",
    "abfss": "container",
    "gcs": "bucket",
}
"""The schemes of an archive's URL, and what their hosts are. Errors don't name the last: it is ``gs`` again."""
_CONTAINER: Final = re.compile(r"[a-z0-9-]+@[a-z0-9]+(\.[a-z0-9-]+)+")
_PARAMETERS: Final = frozenset(
    {
        *("region", "scheme", "endpoint_override", "allow_bucket_creation", "tls_verify_certificates"),
        *("replication", "buffer_size", "default_block_size", "user"),
        *("blob_storage_authority", "dfs_storage_authority"),
        *("project_id", "retry_limit_seconds", "default_bucket_location"),
    }
)
"""The query parameters of pyarrow's file systems that are not secret."""


def check_url(text: str, also: Sequence[str] = ()) -> str:
    """Return the URL without a trailing slash. ``also`` are schemes that its key takes besides, to be named in errors.

    Raises:
        ValueError: it has an unknown scheme, is not an absolute path, or may hold a user or a password.
    """
    if not text.strip() or text != text.strip() or not text.isprintable():
        raise ValueError("is not a URL: give a path such as /archive, or s3://bucket/folder")
    if "://" not in text:
        if not text.startswith("/"):
            raise ValueError("is not absolute: give a path from the root, such as /archive, or a URL")
        return text.rstrip("/") or "/"
    try:
        parts = urlsplit(text)
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    except ValueError:
        raise ValueError("is not a URL that can be read") from None
    file, azure = parts.scheme == "file", parts.scheme in ("abfs", "abfss")
    for wrong, why in (
        (
            parts.scheme not in SCHEMES,
            f"starts with {plain(parts.scheme)}://, which is not one of {', '.join((*[*SCHEMES][:-1], *also))}",
        ),
        (
            azure and not _CONTAINER.fullmatch(parts.netloc),
            "is not Azure's form: write abfss://container@account.dfs.core.windows.net/folder",
        ),
        (
            text.count("@") > azure,  # a password may hold a slash, and then the host does not begin where it seems to
            (
                "has an @, as if it named a user or a password: remove them, and use the environment's own credentials "
                "(such as AWS_PROFILE, an instance's role, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_KEY, "
                "a Kerberos ticket)"
            ),
        ),
        (
            not _PARAMETERS.issuperset(parameters),
            f"has a parameter that is not one of {', '.join(sorted(_PARAMETERS))}; credentials are the environment's",
        ),
        (parts.fragment, "has a part after #, which has no meaning here"),
        (
            file and parts.netloc not in ("", "localhost"),
            "names a host: a file URL has three slashes, file:///archive",
        ),
        (
            file and (parts.query or not parts.path.startswith("/")),
            "is not a file URL: write file:///archive",
        ),
        (not file and not parts.netloc, f"names no {SCHEMES.get(parts.scheme)}"),
    ):
        if wrong:
            raise ValueError(why)
    bare = text.rstrip("/")
    return bare if "://" in bare and not parts.query else text


Event = Literal["trimmed", "held", "refused", "failed", "unprotected"]
EVENTS: Final[tuple[Event, ...]] = get_args(Event)
_WRITE: Final = "write https://…, env:NAME or file:PATH"


class WebhookError(ValueError):
    """The webhook's URL is not usable; the text quotes no part of it."""


@dataclass(frozen=True, slots=True)
class NotifyRules:
    """The policy's rules for notifications.

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
            path = beside(self.folder, name)
            try:
                text = read_file(path).decode("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "is not text"
                raise WebhookError(f"notify.url: {path}: {why}") from None
            return _checked(text, f"notify.url: {path}")
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
