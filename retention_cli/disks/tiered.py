"""Topics with remote storage: a trim deletes remote segments, too, which frees no disk (R6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Unknown
from retention_cli.policy.settings import Settings

_KEY: Final = "remote.storage.enable"


def tiered_topics(
    reader: ClusterReader, names: Collection[str], settings: Mapping[str, Settings]
) -> tuple[dict[str, Unknown], set[str]]:
    """Return why R6 may not trim each topic that has, or may have, remote storage; and the topics that have it."""
    left_alone: set[str] = set()
    asked = sorted(name for name in names if not settings[name].trim_tiered)
    found: dict[str, Unknown] = {}
    for name, values in reader.topic_values(asked, [_KEY]).items() if asked else ():
        if isinstance(values, RequestFailedError):
            found[name] = Unknown.because("R6", f"whether it has remote storage can't be read: {values}")
        elif values.get(_KEY) == "true":
            text = "it has remote storage: a trim would delete all that is remote before it; tiered: trim allows it"
            found[name] = Unknown.because("R6", text)
            left_alone.add(name)
    return found, left_alone
