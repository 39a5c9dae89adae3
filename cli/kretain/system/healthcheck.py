"""``python -m kretain.system.healthcheck``: whether the ``kretain watch`` of this container is healthy, for an image.

It asks ``/healthz`` of the first process, if that is a watch that listens; anything else is healthy while it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import urllib.request
from pathlib import Path

DEFAULT = "127.0.0.1:9308"
_SECONDS = 4.0


def address(command: list[str]) -> str | None:
    """Return where a command listens, None if it is no ``watch`` or does not listen. Pure."""
    if "watch" not in command:
        return None
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    options.add_argument("--listen", default=os.environ.get("KRETAIN_LISTEN", DEFAULT))
    where: str = options.parse_known_args(command)[0].listen
    if where == "off":
        return None
    host, _, port = where.rpartition(":")
    everywhere = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104
    return f"{everywhere.get(host, host)}:{port}"


def main(process: Path = Path("/proc/1")) -> int:
    """Return 0 if it is healthy, 1 if not."""
    where = address(process.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0"))
    if where is None:
        return 0
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{where}/healthz", timeout=_SECONDS) as answer:
            return int(answer.status != 200)
    except OSError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
