"""A topic's records by time: read as columns, counted per partition and hour, shown as a picture or as Parquet."""
