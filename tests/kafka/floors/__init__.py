"""Who has read how far on a real cluster, and what is remembered of it."""
