"""How to reach a cluster and as whom: client files, stores, settings."""
