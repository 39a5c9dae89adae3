"""Forecasts: rates, steady state, full disks, losses."""
