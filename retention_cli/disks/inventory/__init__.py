"""The inventory of the segments on a broker's disks: scanned while the broker runs, stored as Parquet."""
