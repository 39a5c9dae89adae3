"""kretain for scripts and notebooks: ``kretain.connect``, and plans and reports as values (docs/python.md)."""
