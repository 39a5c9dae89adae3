"""The facts of a cluster's partitions, read in the safe order."""
