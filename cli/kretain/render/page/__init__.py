"""Self-contained HTML pages: no script, no network, light and dark, printable (docs/report.md)."""
