"""Files, streams and signals of the operating system."""
