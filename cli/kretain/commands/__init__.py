"""A module per topic of commands: it turns arguments into values, calls the engine, and renders results."""
