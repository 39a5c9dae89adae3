"""Policies of a few lines."""

from __future__ import annotations

from retention_cli.policy.load import parse_policy


def policy(text: str):
    return parse_policy(text, "kretain.yaml", "sha256:x")
