"""Connection settings and credentials: client files, key stores, settings."""
