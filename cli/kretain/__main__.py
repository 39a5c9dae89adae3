"""``kretain`` and ``python -m kretain``."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import signal
import sys
import threading
import time
from typing import Any, Final

from kretain.system import stdio

_AGAIN_S: Final = 0.05
_QUIET: Final = frozenset({"-q", "--quiet", "-h", "--help", "help"})
_sending = threading.Lock()


def send_again(lost: Any) -> None:
    """Send a Ctrl-C again if it arrived where Python can't raise it: there, Python only prints it and goes on.

    Such places are destructors and the callbacks of weak references; each import has one. Python calls this for each
    exception that it ignores (``sys.unraisablehook``).
    """
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return

    if not _sending.acquire(blocking=False):
        return

    def send() -> None:
        time.sleep(_AGAIN_S)  # by then that place is left
        _sending.release()
        ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # a job in the background; then it was a SIGTERM
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM if ignored else signal.SIGINT)

    threading.Thread(target=send, name="kretain-interrupt", daemon=True).start()


def main() -> None:
    """Run the command line and exit with its code."""
    # What a plan reads is kept until it is printed: garbage collection took a tenth of a large plan's time.
    gc.set_threshold(5_000_000, 50, 50)
    # Else pydantic reads the metadata of every installed package, to look for plugins that kretain does not want.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    stdio.prepare()
    sys.unraisablehook = send_again
    # A C library that crashes would end a watch with no message. prepare has made sure that 2 is stderr.
    faulthandler.enable(2)
    code: int | None = None

    def leave() -> None:
        """Exit without deallocating a million objects first; mypy does so, too."""
        if code is None:  # Python reports the error
            return
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    atexit.register(leave)  # registered first, so called last: after threads and all other handlers
    from kretain.render import progress

    if len(sys.argv) > 1 and "_KRETAIN_COMPLETE" not in os.environ and not _QUIET.intersection(sys.argv):
        progress.begin()  # before the slow imports
    from kretain.app import app

    try:
        app(prog_name="kretain")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            code = (end.code or 0) & 0xFF
        if code == 0 and (why := stdio.unprinted()) is not None:  # --help and --version; commands report it themselves
            from kretain.errors import tell_error

            code = 1
            tell_error(code, "output", f"the result could not be printed: {why}")
            raise SystemExit(code) from None
        raise
    finally:
        progress.still()


if __name__ == "__main__":
    main()
