"""What outlives a run: the audit log, and the lock that keeps trims apart."""
