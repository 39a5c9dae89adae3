"""Fleets of clusters: the file that lists them, one plan over all, and its trim, cluster by cluster."""
