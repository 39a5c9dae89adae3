"""The synthetic cluster of the bench answers as a real one does: what is timed there is what a user would wait for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.harness import POLICY
from bench.seed import Shape, seed
from bench.synthetic.start import synthetic
from tests.support.clusters import EmbeddedKafka
from tests.support.world import run_cli, written

SHAPE = Shape(topics=5, groups=4, topics_a_group=3, empty_share=0.25, prefix="synthetic")
UNLIKE = ("topic_id", "bytes", "bytes_exact", "cluster", "policy", "created_at", "run", "lock", "since")


def alike(value: Any) -> Any:
    """Return a document without what differs between any two clusters."""
    if isinstance(value, dict):
        return {key: alike(one) for key, one in value.items() if key not in UNLIKE}
    return [alike(one) for one in value] if isinstance(value, list) else value


def told(bootstrap: str, folder: Path) -> list[Any]:
    """Return what plans before and after a trim say, and the trim; a second plan finds what the first remembered."""
    folder.mkdir()
    policy = written(folder / "policy.yaml", POLICY.replace("bench-*", f"{SHAPE.prefix}-*"))
    common = ("-b", bootstrap, "-p", str(policy), "--state-dir", str(folder / "state"), "-o", "json")
    return [
        alike(json.loads(run_cli(*one, *common, check=0).out))
        for one in (("plan",), ("plan",), ("trim", "--yes"), ("plan",))
    ]


def test_synthetic_cluster_answers_like_a_real_one(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Plans, a trim and the plan after it are the same, commits beyond the end of empty partitions included."""
    seed(kafka.bootstrap, SHAPE, print)
    real = told(kafka.bootstrap, tmp_path / "real")
    with synthetic(SHAPE) as served:
        assert told(served.bootstrap, tmp_path / "made") == real
    assert {"trim", "keep"} <= {row["action"] for row in real[0]["partitions"]}
