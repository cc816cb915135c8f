#!/bin/sh
# Run Spark's Connect server in the foreground. The arguments are options of `spark-submit`.
set -eu

exec "$SPARK_HOME/bin/spark-submit" \
	--class org.apache.spark.sql.connect.service.SparkConnectServer \
	--name tidemark \
	"$@" \
	spark-internal
