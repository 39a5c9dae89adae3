"""Engines that make a plan outside this process or over several clusters: Spark and fleets."""
