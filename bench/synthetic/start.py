"""Start a synthetic cluster in a process of its own, which ends with this one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.seed import Shape


@contextmanager
def synthetic(shape: Shape, *, commit_epoch: int = -1, replicas: int = 1, moving: bool = False) -> Iterator[str]:
    """Serve a shape on three brokers; yield the address to bootstrap from."""
    given = {
        "topics": shape.topics,
        "groups": shape.groups,
        "topics-a-group": shape.topics_a_group,
        "prefix": shape.prefix,
        "empty-share": shape.empty_share,
        "commit-epoch": commit_epoch,
        "replicas": replicas,
    }
    command = [sys.executable, "-m", "bench.synthetic", *(f"--{name}={value}" for name, value in given.items())]
    command += ["--moving"] if moving else []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("its streams are pipes")
        yield json.loads(process.stdout.readline())["bootstrap"]
        process.stdin.close()
