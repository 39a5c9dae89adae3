"""The policy's floors: what they come to, and what is refused (F7)."""

from __future__ import annotations

import jsonschema
import pytest
import yaml

from retention_cli.policy.errors import PolicyError
from retention_cli.policy.load import parse_policy
from retention_cli.policy.schema import json_schema
from retention_cli.policy.settings import FloorSource

TOPICS = "topics:\n  - {match: orders, retention.commitoffset.enable: true, retention.commitoffset.hours: 1}\n"


def policy(floors: str) -> str:
    return f"version: 1\nfloors:\n{floors}\n{TOPICS}"


def sources(floors: str) -> tuple[FloorSource, ...]:
    return parse_policy(policy(floors), "/etc/kretain/policy.yaml", "sha256:0").groups.sources


def test_each_floor_kind_has_its_defaults() -> None:
    assert sources("  - {file: flink.json, name: flink}\n  - {command: [./offsets, --json], name: prod}") == (
        FloorSource("file", "flink", place="/etc/kretain/flink.json"),
        FloorSource("command", "prod", place="/etc/kretain", command=("/etc/kretain/offsets", "--json")),
    )
    [given] = sources(
        "  - {file: 's3://ops/flink.json', name: flink, topics: 'orders.*', max.age: 2h, timeout: 5s}",
    )
    assert given == FloorSource(
        "file",
        "flink",
        place="s3://ops/flink.json",
        topics=("orders.*",),
        max_age_ms=7_200_000,
        timeout_ms=5_000,
    )
    [old] = sources("  - {zookeeper: 'zk1:2181,zk2:2181/kafka', groups: ['b*'], auth.file: zk.secret}")
    assert old == FloorSource(
        "zookeeper",
        "zk1:2181,zk2:2181/kafka",
        place="zk1:2181,zk2:2181/kafka",
        groups=("b*",),
        ignored=("console-consumer-*",),
        auth_file="/etc/kretain/zk.secret",
    )
    [path] = sources("  - {command: [flink-offsets], name: prod}")
    assert path.command == ("flink-offsets",), "it is looked for in PATH"
    assert sources("  - {file: /tmp/x.csv, name: a}")[0].place == "/tmp/x.csv"


def test_json_schema_accepts_valid_floors_and_rejects_invalid_ones() -> None:
    text = policy("  - {file: flink.json, name: flink}\n  - {command: [offsets], name: prod, max.age: 60000}")
    jsonschema.validate(yaml.safe_load(text), json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(policy("  - {file: flink.json, name: 'a b'}")), json_schema())


@pytest.mark.parametrize(
    ("floors", "said"),
    [
        ("  - {file: a.json}", "policy.yaml:3: floors: name is missing: it is what floors call it"),
        (
            "  - {zookeeper: 'zk1/kafka'}",
            "policy.yaml:3: zookeeper: is not host:port, comma separated, and a chroot, such as zk1:2181,zk2:2181/kafka",
        ),
        (
            "  - {zookeeper: 'user:hunter2@zk1:2181'}",
            "policy.yaml:3: zookeeper: is not host:port, comma separated, and a chroot, such as zk1:2181,zk2:2181/kafka",
        ),
        (
            "  - {zookeeper: 'zk1:2181', name: old}",
            "policy.yaml:3: floors: name and max.age are not of zookeeper: its groups have names, and are as of now",
        ),
        (
            "  - {file: a, name: a, groups: [b]}",
            "policy.yaml:3: floors: groups and auth.file are of zookeeper alone",
        ),
        (
            "  - {name: a}",
            "policy.yaml:3: floors: an entry is of one kind: write one of file, command, zookeeper, checkpoint, replica",
        ),
        (
            "  - {name: a, file: a.json, command: [x]}",
            "policy.yaml:3: floors: an entry is of one kind: write one of file, command, zookeeper, checkpoint, replica",
        ),
        (
            "  - {name: 'a b', file: a}",
            "policy.yaml:3: name: 'a b' is not a name: letters, digits, '.', '_' and '-', up to 100",
        ),
        (
            "  - {name: a, file: a}\n  - {name: a, file: b}",
            "policy.yaml:2: floors: file:a stands there twice: give each its own name",
        ),
        (
            "  - {name: a, command: flink --json}",
            'policy.yaml:3: command: is not a list of a program and its arguments, such as ["flink-offsets", "--json"]',
        ),
        (
            "  - {name: a, command: []}",
            'policy.yaml:3: command: is not a list of a program and its arguments, such as ["flink-offsets", "--json"]',
        ),
        (
            "  - {name: a, file: 'ftp://host/x'}",
            "policy.yaml:3: file: starts with ftp://, which is none of file, s3, hdfs, viewfs, gs, http, https",
        ),
        (
            "  - {name: a, file: 'https://user:hunter2@host/x'}",
            (
                "policy.yaml:3: file: holds @, ? or #, behind which secrets stand: name a URL that needs none, or fetch it "
                "by a command"
            ),
        ),
        (
            "  - {name: a, file: 'https://host/x?token=hunter2'}",
            (
                "policy.yaml:3: file: holds @, ? or #, behind which secrets stand: name a URL that needs none, or fetch it "
                "by a command"
            ),
        ),
        ("  - {name: a, file: a, maxage: 1h}", "policy.yaml:3: maxage: is not a key here; did you mean max.age?"),
        ("  - {zookeeper: 'a:1', groups: []}", "policy.yaml:3: floors: groups is empty: nobody would count"),
        ("  - {file: a, name: a, timeout: 0}", "policy.yaml:3: floors: timeout is not between 1 ms and 30 s"),
        ("  - {file: a, name: a, timeout: 100d}", "policy.yaml:3: floors: timeout is not between 1 ms and 30 s"),
        ("  - a.json", "policy.yaml:3: floors: is not a mapping of keys to values"),
        ("  a.json: 1", "policy.yaml:2: floors: is not a list: each entry starts with a dash"),
    ],
)
def test_invalid_floor_is_refused(floors: str, said: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_policy(policy(floors), "policy.yaml", "sha256:0")
    [problem] = error.value.problems
    assert str(problem) == said
    assert "hunter2" not in str(problem)
