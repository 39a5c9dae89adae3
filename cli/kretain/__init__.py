"""The command line of kretain: arguments in, tables and JSON out. The engine is ``retention_cli``."""

import time

BEGAN = time.monotonic()
"""When this process started (``time.monotonic``): shell completion has one second in total, including start-up."""
