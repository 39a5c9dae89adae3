"""What brokers forget: values by lineage (M1 to M4), the ledger, and kretain's own topics."""
