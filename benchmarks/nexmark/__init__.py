"""The queries of NEXMark: batch, stream and hand-written Spark, compared."""
