"""What a policy keeps in steady state, when disks are full, and who loses data next (docs/forecast.md)."""
