"""A streaming query in a process of its own: two Kafka sources and one of files, all that has come, then it ends.

It runs once for each line of standard input: the number of a batch that its sink refuses, or -1.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def serve(bootstrap: str, topics: list[str], folder: str, jars: str) -> None:
    """Run the query as often as asked; say each time whether it came to its end."""
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import DataFrame, SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )

    def stream_of(topic: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        records = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger="10").load()
        return records.select("topic", "partition", "offset")

    def run(fails_at: int) -> str:
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
            return "failed"
        return "done"

    for line in sys.stdin:
        sys.stdout.write(run(int(line)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(**json.loads(sys.argv[1]))
