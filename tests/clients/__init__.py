"""Clients in other languages against embedded brokers."""
