"""Commented policies to start from (``cli/kretain/recipes``), and files that are never overwritten."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from retention_cli.core.files import FileError

RECIPES: Final = ("consumed", "event-time", "min-timestamp", "disk-ceiling", "legal-hold")


def recipe(name: str) -> str:
    """Return a policy as text, in YAML."""
    return (files("kretain") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")


def write_new(path: Path, text: str) -> None:
    """Write a new file, and its folder.

    Raises:
        FileError: it exists, or can't be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise FileError(f"{path} already exists, and is not overwritten: name another file") from None
    except OSError as error:
        raise FileError(f"{path} can't be written: {error.strerror or error}") from None
