"""The inventory of what lies on a broker's disks: read beside a running broker, kept as Parquet."""
