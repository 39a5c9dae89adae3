"""The policy's ``floors``: consumers outside Kafka's groups, from the file's words to values (F7). Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from retention_cli.policy.archive_url import SCHEMES, ArchiveUrlError, check_url
from retention_cli.policy.settings import FloorSource
from retention_cli.policy.shown import shown

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_HTTP: Final = ("http", "https")


def read_name(value: object) -> str:
    """Read a source's name."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise ValueError(f"{shown(value)} is not a name: letters, digits, '.', '_' and '-', up to 100")


def read_place(value: object) -> str:
    """Read a file's path, or its URL without any secret in it."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError("is not a path or a URL")
    if "://" not in value:
        return value
    try:
        if urlsplit(value).scheme not in _HTTP:
            return check_url(value)
    except ArchiveUrlError as error:
        text = str(error)
        if "which is none of" in text:
            text = f"starts with {urlsplit(value).scheme}://, which is none of {', '.join((*SCHEMES[:-1], *_HTTP))}"
        raise ValueError(text) from None
    if "@" in value or "?" in value or "#" in value:
        raise ValueError(
            "holds @, ? or #, behind which secrets stand: name a URL that needs none, or fetch it by a command"
        )
    return value


def read_command(value: object) -> list[str]:
    """Read a program and its arguments."""
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(one, str) and "\0" not in one for one in value)
        or not value[0].strip()
    ):
        raise ValueError('is not a list of a program and its arguments, such as ["flink-offsets", "--json"]')
    return list(value)


def sources_of(models: Sequence[dict[str, object]], folder: Path) -> tuple[FloorSource, ...]:
    """Return the sources that checked entries stand for; relative paths are of the policy file's folder."""
    return tuple(_source(one, folder) for one in models)


def _source(one: dict[str, object], folder: Path) -> FloorSource:
    topics = one.get("topics")
    common = {
        "name": str(one["name"]),
        "topics": tuple(topics) if isinstance(topics, list) else None,
        **{field: one[key] for field, key in (("max_age_ms", "max.age"), ("timeout_ms", "timeout")) if key in one},
    }
    if isinstance(place := one.get("file"), str):
        return FloorSource("file", place=place if "://" in place else str(folder / place), **common)  # type: ignore[arg-type]
    words = one["command"]
    assert isinstance(words, list)  # noqa: S101  (each entry has one kind)
    program = str(folder / words[0]) if "/" in words[0] else words[0]
    return FloorSource("command", place=str(folder), command=(program, *words[1:]), **common)  # type: ignore[arg-type]
