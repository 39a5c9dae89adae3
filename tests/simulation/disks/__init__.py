"""Disks in the simulated Kafka: dirs, devices, sweeps, delays, scans; and what R6 takes of them."""
