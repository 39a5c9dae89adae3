"""A topic's records by time: read as columns, counted by partition and hour, told in a picture or as Parquet."""
