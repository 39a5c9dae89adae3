"""kretain's own topics in a cluster."""
