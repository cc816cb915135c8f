"""The engine includes Spark's own Kafka connector, for queries written by hand."""

from pyspark.sql import SparkSession

from helpers.kafka.topics import Topics, clicks


def test_a_topic_is_read_and_written_by_the_engine(spark: SparkSession, topics: Topics) -> None:
    came, went = topics.create(partitions=2), topics.create()
    topics.send(came, clicks(1, 2), partition=0)
    topics.send(came, clicks(3), partition=1)
    read = spark.read.format("kafka").option("kafka.bootstrap.servers", topics.servers)
    rows = read.option("subscribe", came).load()
    writer = rows.select("value").write.format("kafka").option("topic", went)
    writer.option("kafka.bootstrap.servers", topics.servers).save()
    values = read.option("subscribe", went).load().select("value").collect()
    assert sorted(bytes(row.value) for row in values) == clicks(1, 2, 3)
