"""Plans, archiving and profiles over Spark (docs/spark.md)."""
