"""A file's problems are reported all at once, in order, bounded; a file given by mistake is one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kretain import errors as exits
from retention_cli.policy.errors import MOST_TOLD, PolicyError
from retention_cli.policy.fleet_file import FleetFileError, load_fleet
from retention_cli.policy.load import load_policy, parse_policy
from tests.support.java_stores import jks_store

SECRET = "hunter2"


def lines(text: str) -> list[str]:
    with pytest.raises(PolicyError) as error:
        parse_policy(text, "p.yaml", "")
    return error.value.lines


def test_every_problem_is_listed_in_file_order() -> None:
    text = """\
version: 2
groups: {ignore: ["re:(", good, 7], colour: red}
disks:
  capacity:
    data: 1GiB
    /data: much
floors:
  - file: a.json
topics:
  - match: [a, "re:[", ""]
    retention.ms: soon
    retention.commitoffset.enable: true
  - match:
  - x
"""
    found = lines(text)
    assert [one.split(": ")[0] + " " + one.split(": ")[1] for one in found] == [
        "p.yaml:1 version",
        "p.yaml:2 colour",
        "p.yaml:2 ignore",
        "p.yaml:5 capacity",
        "p.yaml:6 capacity",
        "p.yaml:8 floors",
        "p.yaml:10 match",
        "p.yaml:11 retention.ms",
        "p.yaml:12 retention.commitoffset.enable",
        "p.yaml:13 match",
        "p.yaml:14 topics",
    ]
    assert not any("Value error" in one or "Input should" in one for one in found)


@pytest.mark.parametrize(
    ("scope", "required", "wrong"),
    [
        ("team-a.*", "", "needs groups.require"),
        ("team-a.*", ", groups.require: [team-a.x]", None),
        ("'*'", ", groups.require: ['']", None),
        ("team-a", ", groups.require: [x]", "'team-a' is not a prefix"),
        ("team-?.*", ", groups.require: [x]", "'team-?.*' is not a prefix"),
        ("re:team*", ", groups.require: [x]", "'re:team*' is not a prefix"),
    ],
)
def test_scope_is_a_prefix_and_needs_required_groups(scope: str, required: str, wrong: str | None) -> None:
    text = f"version: 1\ngroups: {{scope: {scope}}}\ntopics: [{{match: t{required}}}]\n"
    if wrong is None:
        assert parse_policy(text, "p.yaml", "").groups.scope == scope.strip("'")[:-1]
    else:
        [line] = lines(text)
        assert line.startswith("p.yaml:2: ")
        assert wrong in line


def test_each_invalid_pattern_of_a_list_has_its_line() -> None:
    found = lines('version: 1\ntopics:\n  - match:\n      - a\n      - "re:["\n      - "re:("\n')
    assert [one[:8] for one in found] == ["p.yaml:5", "p.yaml:6"]


def test_many_problems_are_truncated_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    text = "version: 1\ntopics:\n" + "".join(f"  - {{match: t, k{n}: 1}}\n" for n in range(MOST_TOLD + 3))
    with pytest.raises(PolicyError) as error:
        parse_policy(text, "p.yaml", "")
    assert len(error.value.problems) == MOST_TOLD + 3
    exits.report(error.value, 0)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == MOST_TOLD + 1
    assert said[0].startswith("kretain: p.yaml:3: k0: is not a key here")
    assert said[-1] == "kretain: p.yaml: … and 3 more problems: mend these first"


MISTAKES: dict[str, str | bytes] = {
    "passwd": f"root:x:0:0:{SECRET}:/root:/bin/bash\ndaemon:x:1:1:{SECRET}:/usr/sbin:/bin/sh\n" * 40,
    "a text": f"Call me {SECRET}. Some years ago: never mind how long.\n" * 20_000,
    "csv": f"name,password\nalice,{SECRET}\n" * 1000,
    "properties": f"sasl.password={SECRET}\nsecurity.protocol=SSL\n",
    "properties with colons": "".join(f"{SECRET}.{n}: {SECRET}\n" for n in range(5000)),
    "a log": f"2026-11-01T00:00:00Z ERROR {SECRET} [x] {{y}}\n" * 1000,
    "pem": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n",
    "json": json.dumps({"users": [{"name": SECRET}] * 50}, indent=1),
    "a list": f"- {SECRET}\n" * 1000,
    "shell": f"#!/bin/sh\nexport PASSWORD='{SECRET}'\nif [ -z \"$1\" ]; then echo `id`; fi\n",
    "binary": b"\x7fELF\x02\x01\x01" + b"\0" * 50 + SECRET.encode() + bytes(range(256)) * 100,
    "nul": b"\0" * 5000,
    "store": jks_store("changeit", key=True, key_password="changeit"),
    "empty": "",
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("load", [load_policy, load_fleet])
def test_file_of_another_kind_fails_in_few_short_lines_without_its_content(
    tmp_path: Path, name: str, load: Callable[[Path], object]
) -> None:
    content = MISTAKES[name]
    path = tmp_path / "given"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises((PolicyError, FleetFileError)) as error:
        load(path)
    assert len(error.value.lines) <= (1 if load is load_policy else MOST_TOLD + 1)
    if load is load_policy:
        assert SECRET not in str(error.value)
    assert max(map(len, error.value.lines)) < 300
