"""What is read for somebody who does not wait for it any more: nothing of it is handed over, or being handed over."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from tests.support.world import World, reader_for

GROUPS = [f"nobody-{number}" for number in range(90)]
"""They have no commits; each is handed over all the same."""


class Taken:
    """Takes groups, slowly; at the fifth it does something."""

    def __init__(self, at_fifth: Any) -> None:
        self.names: list[str] = []
        self.busy = False
        self._at_fifth = at_fifth

    def __call__(self, found: GroupCommits | CommitsUnknown) -> None:
        self.busy = True
        self.names.append(found.group)
        if len(self.names) == 5:
            self._at_fifth()
        time.sleep(0.02)
        self.busy = False


def _interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _fail() -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize(("at_fifth", "error"), [(_interrupt, KeyboardInterrupt), (_fail, OSError)])
def test_abandoned_read_hands_over_no_more_results(world: World, at_fifth: Any, error: type[BaseException]) -> None:
    """A caller closes its ledger then: while another thread uses it, SQLite ends the process with a SIGSEGV."""
    taken = Taken(at_fifth)
    with reader_for(world.bootstrap) as reader:
        with pytest.raises(error):
            reader.read_commits(GROUPS, taken)
        names = list(taken.names)
        assert not taken.busy or error is OSError
        time.sleep(0.5)
        assert taken.names == names
        assert 5 <= len(names) < len(GROUPS)
        again = Taken(lambda: None)
        reader.read_commits(GROUPS, again)  # the connections are as good as before
        assert sorted(again.names) == sorted(GROUPS)
