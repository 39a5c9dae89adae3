"""Where an archive may lie; and no password in what is said of it, wherever it was written."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from kretain.errors import UsageError
from kretain.flows.archives import archive_url, in_policy, split
from retention_cli.policy.archive_url import ArchiveUrlError, check_url
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.load import parse_policy
from retention_cli.policy.schema import json_schema

SECRET = "hunter2-s3cret"
GOOD = [
    "/archive",
    "/archive/kafka prod",
    "file:///archive",
    "s3://bucket",
    "s3://bucket/kafka/prod",
    "s3://bucket/kafka?region=eu-central-1&endpoint_override=minio:9000&scheme=http",
    "hdfs://namenode:8020/kafka",
    "hdfs://ha-cluster/kafka?replication=2",
    "viewfs://cluster/kafka",
    "gs://bucket/kafka",
]
BAD = {
    "": "is not a URL",
    "  ": "is not a URL",
    "archive": "is not absolute",
    "./archive": "is not absolute",
    "ftp://host/x": "starts with ftp://",
    "http://host/x": "starts with http://",
    "s3:///x": "names no bucket",
    "hdfs:///x": "names no name node",
    "file://host/x": "names a host",
    "file://x": "names a host",
    "s3://b/x#y": "means nothing here",
    f"s3://key:{SECRET}@bucket/x": "environment",
    f"s3://key:a/{SECRET}@bucket/x": "environment",
    f"gs://{SECRET}@bucket/x": "environment",
    f"hdfs://user:{SECRET}@namenode/x": "environment",
    f"s3://bucket/x?secret_key={SECRET}": "environment",
    f"s3://bucket/x?{SECRET}": "environment",
    f"s3://bucket/x?region=r&access_key={SECRET}": "environment",
}


def policy(url: object) -> str:
    return f"version: 1\ntopics:\n  - match: t\n    retention.ms: 1d\n    archive: {json.dumps(url)}\n"


@pytest.mark.parametrize("url", GOOD)
def test_valid_archive_url_is_taken_unchanged(url: str) -> None:
    assert check_url(url) == url
    loaded = parse_policy(policy(url), "kretain.yaml", "sha256:x")
    settings = loaded.settings_for("t")
    assert settings is not None
    assert settings.archive == url
    origins = loaded.origins("t")
    assert origins is not None
    assert (origins["archive"].value, origins["archive"].place) == (url, "kretain.yaml:5")
    jsonschema.validate({"version": 1, "topics": [{"match": "t", "archive": url}]}, json_schema())


@pytest.mark.parametrize("url", BAD)
def test_invalid_archive_url_names_its_line_without_the_secret(url: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(policy(url), "kretain.yaml", "sha256:x")
    said = str(caught.value)
    assert said.startswith("kretain.yaml:5: archive: ")
    assert BAD[url] in said
    assert SECRET not in said
    assert SECRET not in repr(caught.value)
    with pytest.raises(ArchiveUrlError):
        check_url(url)


@pytest.mark.parametrize("value", [1, True, ["s3://a"], {"a": 1}])
def test_archive_value_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(PolicyError, match=r"kretain\.yaml:5: archive: is not a URL"):
        parse_policy(policy(value), "kretain.yaml", "sha256:x")


def test_later_entry_turns_archiving_off() -> None:
    text = 'version: 1\ntopics:\n  - {match: "*", retention.ms: 1d, archive: /a}\n  - {match: t, archive: none}\n'
    loaded = parse_policy(text, "kretain.yaml", "sha256:x")
    assert loaded.settings_for("t").archive is None  # type: ignore[union-attr]
    assert loaded.settings_for("u").archive == "/a"  # type: ignore[union-attr]


def test_trailing_slashes_do_not_change_the_archive() -> None:
    assert check_url("/archive/") == check_url("/archive")
    assert check_url("s3://bucket/kafka/") == "s3://bucket/kafka"


def test_command_line_argument_with_a_slash_is_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert split(["./a", "orders.*", "s3://b/k"], None) == ([f"{tmp_path}/a", "s3://b/k"], ["orders.*"])
    with pytest.raises(UsageError) as caught:
        archive_url(f"s3://key:{SECRET}@bucket/x")
    assert SECRET not in str(caught.value)


def test_command_without_a_url_uses_the_policys(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        'version: 1\ntopics:\n  - {match: "*", retention.ms: 1d, archive: /a}\n'
        "  - {match: t, archive: /b}\n  - {match: u, archive: none}\n"
    )
    assert split(["t"], file) == (["/a", "/b"], ["t"])
    assert in_policy(file, "t") == ["/b"]
    with pytest.raises(UsageError, match="names no archive for topic u"):
        in_policy(file, "u")
    with pytest.raises(UsageError, match="say where the archive is"):
        split(["t"], None)
