"""``fleet.yaml``: what it may say, and what is answered to all else, with file, line and the nearest key."""

from __future__ import annotations

from pathlib import Path

import pytest

from retention_cli.policy.fleet_file import FleetFile, FleetFileError, load_fleet, parse_fleet

GOOD = """\
version: 1
policy: shared.yaml
clusters:
  - name: eu
    bootstrap-server: eu-1:9092,eu-2:9092
    command-config: secrets/eu.properties
    state-dir: state
  - name: us
    context: us-prod
    policy: /etc/kretain/us.yaml
    timeout: 90s
  - name: ap
    settings: {bootstrap.servers: "ap:9092", enable.ssl.certificate.verification: false}
"""


def parsed(text: str) -> FleetFile:
    return parse_fleet(text, "fleet.yaml", "sha256:x", Path("/fleet"))


def problems(text: str) -> list[str]:
    with pytest.raises(FleetFileError) as error:
        parsed(text)
    return [str(one) for one in error.value.problems]


def test_fleet_paths_are_relative_to_its_file() -> None:
    eu, us, ap = parsed(GOOD).entries
    assert (eu.name, eu.line, eu.context) == ("eu", 4, None)
    assert eu.values == {
        "bootstrap-server": "eu-1:9092,eu-2:9092",
        "command-config": Path("/fleet/secrets/eu.properties"),
        "state-dir": Path("/fleet/state"),
        "policy": Path("/fleet/shared.yaml"),
    }
    assert (us.context, us.values) == ("us-prod", {"policy": Path("/etc/kretain/us.yaml"), "timeout": 90_000})
    assert ap.values["settings"] == {"bootstrap.servers": "ap:9092", "enable.ssl.certificate.verification": "false"}
    assert parsed(GOOD).names_policies
    assert not parsed("version: 1\nclusters: [{name: a, context: a}]\n").names_policies


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ["fleet.yaml:1: is not a mapping: start with version: 1"]),
        ("- a", ["fleet.yaml:1: is not a mapping: start with version: 1"]),
        ("version: 1\n", ["fleet.yaml:1: clusters: is missing"]),
        ("version: 1\nclusters: []\n", ["fleet.yaml:2: clusters: is empty: a fleet has clusters"]),
        ("version: 1\nclusters: eu\n", ["fleet.yaml:2: clusters: is not a list: each starts with '- name: …'"]),
        (
            "version: true\nclusters: [{name: a, context: a}]\n",
            ["fleet.yaml:1: version: is not 1, the format that this kretain reads"],
        ),
        (
            "version: 1\nclusters:\n  - name: a\n    bootstrap_server: b:9092\n",
            ["fleet.yaml:4: bootstrap_server: is not a key here; did you mean bootstrap-server?"],
        ),
        (
            "version: 1\ncontext: x\nclusters: [{name: a, context: a}]\n",
            ["fleet.yaml:2: context: is not a key here; it belongs into an entry of clusters"],
        ),
        (
            "version: 1\nclusters:\n  - name: a\n    context: a\n  - name: a\n    context: b\n",
            ["fleet.yaml:5: name: a is given twice (first in line 3)"],
        ),
        (
            "version: 1\nclusters:\n  - name: a\n    context: c\n  - name: b\n    context: c\n",
            ["fleet.yaml:6: context: c is a's already: a cluster is named once"],
        ),
        (
            "version: 1\nclusters:\n  - name: a\n    context: c\n    bootstrap-server: b:9092\n",
            ["fleet.yaml:5: bootstrap-server: can't stand beside context, which says how the cluster is reached"],
        ),
        (
            "version: 1\nclusters:\n  - name: a b\n    context: c\n",
            ["fleet.yaml:3: name: is not a name: letters, digits, dots, hyphens and underscores"],
        ),
        ("version: 1\nclusters:\n  - context: c\n", ["fleet.yaml:3: name: is missing"]),
        (
            "version: 1\nclusters:\n  - name: a\n    context: c\n    timeout: 0s\n",
            ["fleet.yaml:5: timeout: is not a duration such as 30s"],
        ),
        (
            "version: 1\nversion: 1\nclusters: [{name: a, context: a}]\n",
            ["fleet.yaml:2: version: is given twice (first in line 1)"],
        ),
        (
            "version: 1\npolicy:\nclusters: [{name: a, context: a}]\n",
            ["fleet.yaml:2: policy: has no value: give one, or take the key out"],
        ),
    ],
)
def test_fleet_file_error_has_its_line(text: str, said: list[str]) -> None:
    assert problems(text) == said


@pytest.mark.parametrize(
    "settings",
    [
        "{sasl.password: [hunter2]}",
        "{sasl.password: {hunter2: x}}",
        "*hunter2",
        "hunter2",
        '{sasl.password: "hunter2',
        "{sasl.password: !hunter2 x}",
    ],
)
def test_unreadable_password_is_never_quoted(settings: str) -> None:
    said = problems(f"version: 1\nclusters:\n  - name: a\n    settings: {settings}\n")
    assert "hunter2" not in "".join(said)
    assert "hunter2" not in repr(parsed(GOOD.replace("ap:9092", "hunter2")).entries)


def test_missing_or_binary_fleet_file_fails_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(FleetFileError, match=r"nowhere\.yaml: cannot be read: No such file"):
        load_fleet(tmp_path / "nowhere.yaml")
    (tmp_path / "fleet.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FleetFileError, match="is not UTF-8 text"):
        load_fleet(tmp_path / "fleet.yaml")
