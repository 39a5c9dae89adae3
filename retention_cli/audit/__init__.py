"""What was done, in lines that are chained by hash, and who holds the lock to do it."""
