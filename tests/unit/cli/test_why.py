"""``kretain why``: each code is explained, in any format, and its commands are complete."""

from __future__ import annotations

import json
import shlex

import pytest

from kretain.reasons import explanations
from tests.support.world import run_cli


def test_without_a_code_every_code_is_listed_with_its_meaning() -> None:
    shown = run_cli("why", check=0).out
    for one in explanations().values():
        assert one.title.replace("`", "") in shown
        assert any(line.split()[:1] == [one.code] for line in shown.splitlines()), one.code


@pytest.mark.parametrize("code", ["F2", "f2"])
def test_code_in_any_case_of_letters_is_explained_with_the_clusters_address(code: str) -> None:
    lines = run_cli("why", code, "-b", "broker:9092", check=0).out.splitlines()
    assert lines[0] == "F2: A group reads this topic but has no commit on this partition."
    commands = [shlex.split(line) for line in lines if line.startswith("    k")]
    assert [one[:3] for one in commands] == [
        ["kafka-consumer-groups.sh", "--bootstrap-server", "broker:9092"],
        ["kretain", "groups", "forget"],
    ]
    assert "`" not in "\n".join(lines)


def test_client_file_reaches_every_tool_by_its_own_option(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "client file.properties"
    file.write_text("client.id=x\n")
    shown = {code: run_cli("why", code, "-b", "b:1", "-c", str(file), check=0).out for code in ("F8", "G9")}
    assert f"kafka-acls.sh --bootstrap-server b:1 --command-config '{file}' --add" in shown["F8"]
    assert f"kafka-console-consumer.sh --bootstrap-server b:1 --consumer.config '{file}' --topic" in shown["G9"]


def test_unknown_code_is_a_usage_error_that_lists_the_codes() -> None:
    done = run_cli("why", "zz", check=2)
    assert "no reason code 'zz'; codes are F2, F3" in done.err


def test_json_has_each_code_title_and_text() -> None:
    found = json.loads(run_cli("why", "-o", "json", check=0).out)
    assert [row["code"] for row in found["codes"]] == list(explanations())
    assert all(row["title"].endswith(".") for row in found["codes"])


@pytest.mark.parametrize(("line", "same"), [(("help", "plan"), ("plan", "--help")), (("version",), ("--version",))])
def test_help_and_version_are_commands_too(line: tuple[str, ...], same: tuple[str, ...]) -> None:
    assert run_cli(*line, check=0).out == run_cli(*same, check=0).out
