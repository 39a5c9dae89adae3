"""Profile a topic's records by time: read as columns, counted per partition and hour, shown as a chart or as rows."""
