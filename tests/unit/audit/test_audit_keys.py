"""The keys of a policy's ``audit``."""

from __future__ import annotations

from pathlib import Path

import pytest

from retention_cli.policy.errors import PolicyError
from retention_cli.policy.load import parse_policy


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("topic: _kretain_policy", "has a use of its own"),
        ("topic: __consumer_offsets", "has a use of its own"),
        ("topic: 'a b'", "is not a topic's name"),
        ("max.bytes: 0", "is too small"),
        ("otlp: x", "is not a key here"),
        ("max.size: 1MiB", "is not a key here"),
    ],
)
def test_wrong_audit_key_is_refused_with_its_line(keys: str, words: str) -> None:
    text = f"version: 1\naudit: {{{keys}}}\ntopics: [{{match: t, retention.ms: 1d}}]\n"
    with pytest.raises(PolicyError, match=words) as caught:
        parse_policy(text, "p.yaml", "d")
    assert "p.yaml:2" in str(caught.value)


def test_audit_keys_are_parsed_from_the_policy(tmp_path: Path) -> None:
    text = "version: 1\naudit: {max.bytes: 1MiB, topic: ops}\n"
    rules = parse_policy(f"{text}topics: [{{match: t, retention.ms: 1d}}]\n", str(tmp_path / "p.yaml"), "d").audit
    assert (rules.max_bytes, rules.topic) == (1 << 20, "ops")
