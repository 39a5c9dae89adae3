"""One short module per command: it turns arguments into values, calls the engine, and renders results."""
