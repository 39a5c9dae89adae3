"""What this process keeps of freed memory while it plans a fleet over Spark."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from kretain.flows.spark import SharedSpark
from kretain.options.spark import SparkFlags
from retention_cli.engines.spark import heap

try:
    GLIBC = (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
except (AttributeError, ValueError):
    GLIBC = False

_HEAPS = """
import ctypes, os, threading
from retention_cli.engines.spark.heap import give_back, share_one_heap
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
"""
_THREADS = """
together = threading.Barrier(4)
def work():
    libc.malloc(1000)
    together.wait()
threads = [threading.Thread(target=work) for _ in range(4)]
[one.start() for one in threads]; [one.join() for one in threads]
libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes, libc.fflush.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout")); libc.fflush(None)
"""
_FREED = """
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
import pyarrow
some = [libc.malloc(100_000) for _ in range(1_000)]
for one in some:
    ctypes.memset(one, 1, 100_000)
keep = libc.malloc(100_000)  # so that the heap can't just end earlier
for one in some:
    libc.free(one)
before = resident()
give_back()
print(before - resident())
"""


def ran(script: str, **environ: str) -> str:
    command = [sys.executable, "-c", _HEAPS + script]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(command, env=kept | environ, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


@pytest.mark.skipif(not GLIBC, reason="other C libraries have no such heaps")
def test_threads_share_one_heap() -> None:
    assert ran("share_one_heap()" + _THREADS).count("<heap nr=") == 1
    assert ran(_THREADS).count("<heap nr=") > 1, "else there is nothing to do"


@pytest.mark.skipif(not GLIBC, reason="other C libraries have no such heaps")
def test_whoever_has_set_the_number_of_heaps_has_it() -> None:
    assert ran("share_one_heap()" + _THREADS, MALLOC_ARENA_MAX="3").count("<heap nr=") > 1


@pytest.mark.skipif(not GLIBC, reason="other C libraries have no such heaps")
def test_freed_memory_goes_back_to_the_system() -> None:
    assert int(ran(_FREED)) > 50, "100 MiB were freed in the middle of the heap"


def test_elsewhere_nothing_is_asked_of_the_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_name: str) -> str:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "confstr", unknown)
    monkeypatch.setattr(ctypes, "CDLL", None)
    heap.share_one_heap()
    heap.give_back()


def test_only_a_command_over_spark_shares_one_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(heap, "share_one_heap", lambda: asked.append(True))
    SharedSpark(SparkFlags())
    assert not asked
    SharedSpark(SparkFlags(spark=True))
    assert asked
