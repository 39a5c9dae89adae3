"""The import path of kretain's data sources for notebooks: ``from retention_cli.spark import register``."""

from __future__ import annotations

from retention_cli.engines.spark.sources import register

__all__ = ["register"]
