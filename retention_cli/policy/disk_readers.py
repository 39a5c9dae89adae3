"""What a policy's values about disks may be, as :mod:`retention_cli.policy.readers` has the others. Pure."""

from __future__ import annotations

import re
from typing import Final

from retention_cli.policy.readers import Item, read_bytes, right
from retention_cli.policy.shown import short, shown

_DIR: Final = re.compile(r"(\d+:)?[^:]*[/\\].*")


def read_sizes_by_dir(value: object) -> dict[str, int]:
    """Read one size for all disks (``*``), or one per ``DIR`` or ``BROKER:DIR``."""
    if not isinstance(value, dict):
        return {"*": read_bytes(value)}
    found: dict[str, int] = {}
    wrong: list[Item] = []
    for key, size in value.items():
        if not isinstance(key, str) or _DIR.fullmatch(key) is None:
            wrong.append(
                ((str(key),), f"{shown(key)} is not a log dir: write it as the broker does, /data, or 1:/data")
            )
            continue
        try:
            found[key] = read_bytes(size)
        except ValueError as error:
            wrong.append(((key,), str(error)))
    return right(found, wrong)


def read_devices(value: object) -> list[list[str]]:
    """Read a list per device of the log dirs that are on it."""
    if not isinstance(value, list) or not all(isinstance(one, list) and one for one in value):
        raise ValueError("give a list per device of the log dirs that are on it, such as [[/data/a, /data/b]]")
    dirs = [one for device in value for one in device]
    for one in dirs:
        if not isinstance(one, str) or _DIR.fullmatch(one) is None:
            raise ValueError(f"{shown(one)} is not a log dir: write it as the broker does, /data, or 1:/data")
        if dirs.count(one) > 1:
            raise ValueError(f"{short(one)} is on two devices")
    return [list(one) for one in value]
