"""One short module per command: arguments become values, the engine works, results are rendered."""
