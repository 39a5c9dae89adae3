"""``kretain`` and ``python -m kretain``."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import sys

from kretain.system import stdio


def main() -> None:
    """Run the command line and exit with its code."""
    # What a plan reads is kept until it is printed: garbage collection took a tenth of a large plan's time.
    gc.set_threshold(5_000_000, 50, 50)
    # Else pydantic reads the metadata of every installed package, to look for plugins that kretain does not want.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    stdio.prepare()
    # A library in C that crashes would end a watch without a word. 2 is stderr: prepare has seen to it.
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


if __name__ == "__main__":
    main()
