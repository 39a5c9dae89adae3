"""Determine the archives that a command uses: a typed URL, or those in the policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kretain.errors import UsageError
from kretain.options.common import option

if TYPE_CHECKING:
    from retention_cli.archive.store import Store


def archive_url(text: str) -> str:
    """Return a URL as typed, or a path made absolute.

    Raises:
        UsageError: it is not a URL or path, or contains a password; the text does not repeat it.
    """
    from retention_cli.policy.urls import check_url

    try:
        return check_url(text if "://" in text else str(Path(text).absolute()))
    except ValueError as error:
        raise UsageError(f"the archive's URL {error}") from None


KeysOption = Annotated[
    list[str] | None,
    option(
        "--archive-key",
        metavar="FILE",
        help="Use this key file, not the policy's. Repeatable.",
    ),
]


def opened(url: str, keys: Sequence[str] | None, policy: Path | None) -> Store:
    """Return the archive at a URL, with the keys that were given, else the policy's.

    Raises:
        ArchiveError: it can't be reached, or a key can't be read.
        PolicyError: the policy is invalid.
    """
    from retention_cli.archive.store import Store
    from retention_cli.policy.load import load_policy

    if not keys and policy is not None:
        keys = load_policy(policy).archive_keys
    return Store(url, keys=keys or ())


def split(where: Sequence[str], policy: Path | None) -> tuple[list[str], list[str]]:
    """Return the URLs and the topics among arguments. One with a slash is a URL, as topic names have none.

    Raises:
        UsageError: no URL is given, and no policy has one.
        PolicyError: the policy is invalid.
    """
    urls = [archive_url(one) for one in where if "/" in one]
    return urls or in_policy(policy), [one for one in where if "/" not in one]


def in_policy(policy: Path | None, topic: str | None = None) -> list[str]:
    """Return the URLs in a policy, for one topic or for all.

    Raises:
        UsageError: there is no policy, or it has no URL.
        PolicyError: the policy is invalid.
    """
    from retention_cli.policy.load import load_policy
    from retention_cli.policy.urls import NONE

    if policy is None:
        raise UsageError("say where the archive is: a URL (a path has a slash: ./archive), or a policy that names one")
    loaded = load_policy(policy)
    if topic is not None:
        settings = loaded.settings_for(topic)
        named = [] if settings is None or settings.archive is None else [settings.archive]
    else:
        named = [str(entry.values["archive"]) for entry in loaded.entries if "archive" in entry.values]
    found = list(dict.fromkeys(one for one in named if one != NONE))
    if not found:
        what = "names no archive" if topic is None else f"names no archive for topic {topic}"
        raise UsageError(f"{policy} {what}: give its URL")
    return found
