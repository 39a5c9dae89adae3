"""``kretain watch`` and forecasts on a real cluster."""
