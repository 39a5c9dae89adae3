"""The command line of kretain: arguments in, tables and JSON out. The engine is ``retention_cli``."""
