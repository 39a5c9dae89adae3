"""``kretain replay --spark`` finds what this process finds by itself, byte for byte."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kretain.render.history import print_replayed
from retention_cli.engines.spark.replay import replay_over
from retention_cli.engines.spark.session import SparkError
from retention_cli.engines.spark.shipping import Sender
from retention_cli.evidence.replay import recorded, replay
from tests.support.evidence import several_runs
from tests.support.facts import policy

POLICY = policy("version: 1\ntopics:\n- match: '*'\n  retention.ms: 1h\n")


def test_replay_over_spark_prints_the_same_bytes(
    local_spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    several_runs(tmp_path)
    runs = recorded(tmp_path)
    for output in ("table", "json", "csv"):
        for found in (replay(runs, POLICY), replay_over(Sender(local_spark, tmp_path), runs, POLICY)):
            print_replayed(found, "policy.yaml", output)
            assert found.totals["earlier"] > 0
        shown = capsys.readouterr().out
        assert shown[: len(shown) // 2] == shown[len(shown) // 2 :] != ""


def test_evidence_that_executors_can_not_read_is_an_error(tmp_path: Path) -> None:
    several_runs(tmp_path)
    elsewhere = Sender(SimpleNamespace(_jsc=None), tmp_path)
    with pytest.raises(SparkError, match=r"cluster-0/evidence is on this machine: copy it to"):
        replay_over(elsewhere, recorded(tmp_path), POLICY)
