"""Connections to real brokers, and the brokers that kretain itself starts."""
