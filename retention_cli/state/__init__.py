"""Where memories are kept, and kretain's own topics in a cluster."""
