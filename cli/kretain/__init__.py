"""The command line of kretain: arguments in, tables and JSON out. The engine is ``retention_cli``."""

import time

BEGAN = time.monotonic()
"""When this process began to be kretain: a shell that completes waits a second in all, not a second for us."""
