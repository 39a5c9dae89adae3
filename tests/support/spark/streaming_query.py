"""A streaming query in a process of its own: two Kafka sources and one of files, all that has come, then it ends."""

from __future__ import annotations

import json
import sys
from typing import Any


def run(bootstrap: str, topics: list[str], folder: str, jars: str, fails_at: int) -> int:
    """Run the query; ``fails_at`` is a batch that its sink refuses. Return 1 where it did."""
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import DataFrame, SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )

    def stream_of(topic: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        records = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger="6").load()
        return records.select("topic", "partition", "offset")

    def sink(batch: DataFrame, number: int) -> None:
        if number == fails_at:
            raise RuntimeError("refused on purpose")
        batch.coalesce(1).write.mode("append").json(f"{folder}/out")

    everything: Any = spark.readStream.schema("topic string, partition int, offset long").json(f"{folder}/in")
    for topic in topics:
        everything = stream_of(topic).union(everything)
    query = everything.writeStream.foreachBatch(sink).option("checkpointLocation", f"{folder}/checkpoint")
    try:
        query.trigger(availableNow=True).start().awaitTermination()
    except StreamingQueryException:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run(**json.loads(sys.argv[1])))
