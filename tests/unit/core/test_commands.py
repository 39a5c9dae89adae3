"""Command lines to be copied (``core.commands``, ``core.extras``), and names in sentences."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import sys
from pathlib import Path

import pytest

from kretain import reach
from retention_cli.core.commands import Reach, grant_line, kafka_tool, kretain
from retention_cli.core.consumers import forget_hint, who
from retention_cli.core.extras import MissingPartError, how_to_add, part
from retention_cli.core.printable import name_in_text, shell_word

REACH = Reach(
    ("--bootstrap-server", "b1:9092", "--command-config", "my file"), ("-b", "b1:9092", "-c", "my file", "-p", "a'b")
)


@pytest.mark.parametrize("name", ["billing", "", "-g", "--", "it's", "a,", "a.", " a"])
def test_quoted_name_is_one_shell_word(name: str) -> None:
    tool = REACH.complete(kafka_tool("kafka-consumer-groups.sh", "--delete", "--group", name))
    assert shlex.split(tool) == ["kafka-consumer-groups.sh", *REACH.kafka, "--delete", "--group", name]
    ours = shlex.split(REACH.complete(kretain("groups", "forget", names=(name,))))
    assert ours[:3] == ["kretain", "groups", "forget"]
    assert ours[3 : 3 + len(REACH.ours)] == list(REACH.ours)
    assert ours[3 + len(REACH.ours) :] == (["--", name] if name.startswith("-") else [name])


def test_word_ending_like_a_clause_is_quoted() -> None:
    assert [shell_word(one) for one in ("a", "a,", "a.b", "a.")] == ["a", "'a,'", "a.b", "'a.'"]


def test_unprintable_name_is_quoted_in_sentences() -> None:
    assert [name_in_text(one) for one in ("a", "", " ", "a b", "a ")] == ["a", "''", "' '", "a b", "'a '"]
    assert who("") == "group ''"
    assert forget_hint("").endswith("kretain groups forget -b HOST:PORT ''")


def test_printed_commands_get_the_clusters_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_known", [])
    line = grant_line("Describe", "cluster")
    assert reach.completed({"a": [line]}) == {"a": [line]}
    reach.reaches("b:1", None, [("--context", "prod")], secured=False)
    assert reach.completed({"a": [line, 1, None]}) == {"a": [line.replace("HOST:PORT", "b:1"), 1, None]}
    assert reach.complete(kretain("init")) == "kretain init --context prod"
    reach.reaches("b:1", None, [], secured=True)
    assert "--bootstrap-server b:1 --command-config FILE" in reach.complete(line)


@pytest.mark.parametrize(
    ("receipt", "origin", "command"),
    [
        (None, None, "pip install 'kretain[parquet]'"),
        (None, {"url": "file://{}", "dir_info": {"editable": True}}, "pip install -e '{}[parquet]'"),
        (None, {"url": "file://{}", "dir_info": {}}, "pip install '{}[parquet]'"),
        (None, {"url": "file:///nowhere/kretain.whl", "archive_info": {}}, "pip install 'kretain[parquet]'"),
        (None, {"url": "https://example.org/kretain.whl", "archive_info": {}}, "pip install 'kretain[parquet]'"),
        (None, ["odd"], "pip install 'kretain[parquet]'"),
        ("pipx_metadata.json", None, "pipx install --force 'kretain[parquet]'"),
        ("pipx_metadata.json", {"url": "file://{}", "archive_info": {}}, "pipx install --force '{}[parquet]'"),
        ("uv-receipt.toml", None, "uv tool install --force 'kretain[parquet]'"),
    ],
)
def test_install_hint_matches_the_installer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receipt: str | None, origin: object, command: str
) -> None:
    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if origin is None else json.dumps(origin).replace("//{}", f"//{tmp_path}")

    monkeypatch.setattr(importlib.metadata, "distribution", lambda _name: Distribution())
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    if receipt is not None:
        (tmp_path / receipt).write_text("")
    assert how_to_add("parquet") == command.replace("{}", str(tmp_path))


def test_missing_package_is_named_with_the_install_command() -> None:
    with pytest.raises(
        MissingPartError,
        match=r"metrics need prometheus_client: pip install .*\[metrics\]', or --listen off \(No module named",
    ):
        part("metrics", "no_such_module")
