"""Command lines to be copied (``core.commands``), and names in sentences."""

from __future__ import annotations

import shlex

import pytest

from kretain import reach
from retention_cli.core.commands import Reach, grant_line, kafka_tool, kretain
from retention_cli.core.consumers import forget_hint, who
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
