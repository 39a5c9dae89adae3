"""Where a plan is computed besides this process: Spark, and fleets of clusters."""
