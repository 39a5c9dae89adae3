"""The Python API without a cluster: its names, its errors by kind, and a plan in a notebook."""

from __future__ import annotations

import ast
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest

import kretain
from kretain.api.errors import ErrorCode, translated
from kretain.api.values import Origin, Result, plan_value
from kretain.error_codes import CODES
from retention_cli import __version__
from retention_cli.audit.lock import LockedError
from retention_cli.brokers.errors import UnauthorizedError, UnreachableError
from retention_cli.core.extras import MissingPartError
from retention_cli.core.model import Reason
from retention_cli.core.state_dir import StateError
from retention_cli.policy.load import load_policy
from retention_cli.trim.batches import RefusedError
from tests.support.plans import HOLD, KEEP, plan as plan_of

STUB = Path(kretain.__file__).with_suffix(".pyi")


class Tags(HTMLParser):
    """The tags of a document, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert attrs == []
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_module_lists_its_api_and_nothing_private() -> None:
    names = dir(kretain)
    assert {name for name in names if name.startswith("_")} == {"__version__"}
    assert kretain.__version__ == __version__
    assert all(getattr(kretain, name) is not None for name in names)
    stub = {
        alias.asname
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert stub == {*names} - {"__version__"}
    assert not hasattr(kretain, "no_such_name")


def test_error_codes_are_those_of_the_command() -> None:
    assert set(get_args(ErrorCode)) == CODES.keys()


@pytest.mark.parametrize(
    ("error", "kind", "code", "exit_code"),
    [
        (UnreachableError("x"), kretain.UnreachableError, "unreachable", 1),
        (UnauthorizedError("x"), kretain.UnauthorizedError, "unauthorized", 1),
        (StateError("x"), kretain.StateError, "state", 1),
        (LockedError("x"), kretain.LockedError, "locked", 6),
        (RefusedError([Reason("G6", "x")]), kretain.RefusedError, "refused", 6),
        (MissingPartError("x"), kretain.KretainError, "missing-part", 1),
    ],
)
def test_error_is_raised_by_its_kind_with_code_and_cause(
    error: Exception, kind: type[kretain.KretainError], code: str, exit_code: int
) -> None:
    with pytest.raises(kretain.KretainError) as raised, translated():
        raise error
    assert type(raised.value) is kind
    assert (raised.value.code, raised.value.exit_code, raised.value.__cause__) == (code, exit_code, error)


def test_every_problem_of_a_policy_is_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\nnonsense: 1\nmore: 2\ntopics: [{match: t}]\n")
    with pytest.raises(kretain.PolicyError) as raised, translated():
        load_policy(tmp_path / "p.yaml")
    assert len(raised.value.problems) == 2


def test_bug_is_not_disguised_as_an_error_of_the_api() -> None:
    with pytest.raises(ZeroDivisionError), translated():
        raise ZeroDivisionError


def test_plan_is_iterable_and_a_notebook_shows_it_escaped() -> None:
    reason = Reason("F2", "group <script>alert(1)</script> & \x1b[2J has no commit")
    rows = [HOLD._replace(partition=number, reasons=(reason,)) for number in range(50)]
    rows += [KEEP._replace(partition=number) for number in range(50, 53)]
    plan = plan_value(Origin(plan_of(*rows), None, None))
    assert [row.action for row in plan] == ["hold"] * 50 + ["keep"] * 3
    assert len(plan) == 53
    html = plan._repr_html_()
    found = Tags(html)
    assert found.tags.count("tr") == 41
    assert "script" not in found.tags
    assert "\x1b" not in html
    assert any("<script>alert(1)</script> & " in text for text in found.texts)
    assert "and 10 more" in found.texts
    assert "0 trim, 3 keep, 50 hold, 0 skip" in "".join(found.texts)


def test_result_is_a_sequence_of_read_only_rows_with_exact_integers() -> None:
    rows: list[dict[str, object]] = [{"topic": "t", "offset": 2**53 + 1}, {"topic": "u", "offset": None}]
    found = Result({"format": "kretain.offsets/v1"}, "partitions", rows, [Reason("F6", "x")])
    assert [row["offset"] for row in found] == [2**53 + 1, None]
    assert (len(found), found[-1]["topic"], found.notes[0].code) == (2, "u", "F6")
    with pytest.raises(TypeError):
        found[0]["topic"] = "v"  # type: ignore[index]
    assert found.to_dict() == {"format": "kretain.offsets/v1", "partitions": rows}
    frame = found.to_pandas()
    assert str(frame["offset"].dtype) == "Int64"
    assert int(frame["offset"][0]) == 2**53 + 1
    assert repr(found) == "<kretain.Result kretain.offsets/v1: 2 partitions>"
