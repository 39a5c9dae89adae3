"""Evidence: what a trim leaves behind to prove each delete later, without the cluster (docs/evidence.md)."""
