"""The name by which notebooks ask for kretain's data sources: ``from retention_cli.spark import register``."""

from __future__ import annotations

from retention_cli.engines.spark import register

__all__ = ["register"]
