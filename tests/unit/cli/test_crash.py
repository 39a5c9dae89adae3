"""Where the process itself crashes, standard error says where it was."""

from __future__ import annotations

import signal
import subprocess
import sys

CRASH = """
import os, signal, kretain.app
def trim_a_partition(**_): os.kill(os.getpid(), signal.SIGSEGV)
kretain.app.app = trim_a_partition
from kretain.__main__ import main
main()
"""


def test_crash_names_its_place_and_keeps_its_signal() -> None:
    """A supervisor must see that it was one, and who looks for its cause needs more than that."""
    done = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in done.stderr
    assert "in trim_a_partition" in done.stderr
