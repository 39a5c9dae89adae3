"""How results look: tables for people, and JSON, YAML, CSV for scripts. Nothing here decides anything."""
