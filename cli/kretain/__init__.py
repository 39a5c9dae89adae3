"""The command line of kretain: arguments in, tables and JSON out. The engine is ``retention_cli``."""

import time

BEGAN = time.monotonic()
"""When this process started: shell completion has one second in total, not one second for us."""
