"""Protection on a simulated cluster: crashes, other operators, changes by hand, full disks, recreated topics."""
