"""The same observe and decide, spread over a Spark cluster (DESIGN.md, One way through it)."""
