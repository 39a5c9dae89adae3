"""Files, streams and signals of the machine it runs on."""
