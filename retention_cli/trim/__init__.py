"""Executing a plan: recheck, send, verify, report."""
