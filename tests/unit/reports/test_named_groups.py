"""Which groups ``kretain groups forget`` means: names, or patterns of those that are gone."""

from __future__ import annotations

from typing import Any

import pytest

from retention_cli.reports.ledger import NotRememberedError, named


class Remembered:
    """A ledger that remembers these groups."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def begin(self, topic_ids: object) -> None:
        """Do nothing."""

    def remembers_group(self, name: str) -> bool:
        return name in self._names

    def gone_groups(self, present: Any, since_ms: int) -> list[tuple[str, int, dict[str, Any]]]:
        return [(name, since_ms, {}) for name in self._names if name not in present]


def chosen(*given: str, remembered: tuple[str, ...] = ("job-1", "job-2", "job-live", "a*", "ab")) -> list[str]:
    ledger: Any = Remembered(*remembered)
    return named(ledger, given, {"job-live"}, {})


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (("job-1",), ["job-1"]),
        (("job-*",), ["job-1", "job-2"]),
        (("re:job-[0-9]", "job-2", "ab"), ["job-1", "job-2", "ab"]),
        (("job-live",), ["job-live"]),
        (("a*",), ["a*"]),
        (("unknown",), ["unknown"]),
    ],
)
def test_group_pattern_selects_deleted_groups_and_a_name_selects_itself(
    given: tuple[str, ...], found: list[str]
) -> None:
    assert chosen(*given) == found


def test_group_pattern_of_two_hundred_names_selects_them_all() -> None:
    names = tuple(f"consumer-{number:032x}" for number in range(200))
    assert chosen("consumer-????????????????????????????????", remembered=names) == list(names)


def test_pattern_matching_nothing_is_refused() -> None:
    with pytest.raises(NotRememberedError, match="matches nothing-\\*; nothing was forgotten"):
        chosen("job-1", "nothing-*")
