"""Real Spark, YARN and HDFS on this machine, and what their tests share."""
