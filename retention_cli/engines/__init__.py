"""Other ways to compute a plan than in this process: Spark, and fleets of clusters."""
