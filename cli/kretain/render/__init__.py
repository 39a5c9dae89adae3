"""Print results: tables for the terminal, and JSON, YAML, CSV for scripts. Nothing here decides anything."""
