"""The thresholds that choose between two ways to compute the same result.

Results never depend on a threshold: tests set thresholds to their extremes. The name of each
threshold ends with its unit. Each docstring names the two ways, and a benchmark if one measures
them. The benchmark has workloads below and above the threshold, or only on one side. Run it before
you change a value. *Memory* means that the value bounds the memory of one step.
`python -m benchmarks` reports this memory as the peak.
"""

# In this process, or in the engine.

SMALL_BATCH_ROWS = 20_000
"""Up to this number of rows, this process computes with Arrow, and the engine interprets plans.

If there are more, the rows stay in the engine, which compiles its plans. Benchmark:
`benchmarks.increments` (below) and `benchmarks` (above).
"""

SMALL_BATCH_BYTES = 4 << 20
"""Up to this size of its input, a commit with at most `SMALL_BATCH_ROWS` rows is a small batch.

Benchmark: `benchmarks.increments` (below) and `benchmarks` (above).
"""

IN_MEMORY_PARTIALS = 250_000
"""Up to this number of stored partials or window rows, this process merges them in memory.

If there are more, the engine merges them. Benchmark: `benchmarks.increments --growth` (below) and
`benchmarks` (above).
"""

VALIDATED_ROWS = 100_000
"""Up to this number of window rows, all validated rows are in memory at the same time.

If there are more, they are processed in chunks of this size. Benchmark: `benchmarks.checks`
(below); memory.
"""

GATHERED_BYTES = 256 << 20
"""Up to this size, rows that can be read only once are gathered in memory; larger ones, in files.

Memory.
"""

SINGLE_RECORDS = 64
"""Up to this number of records, a batch with an irregular record is decoded record by record.

Larger batches are halved. Benchmark: `benchmarks.latency`.
"""

JSON_BATCH_BYTES = 1 << 28
"""Up to this size, Arrow decodes a batch of JSON at once; larger batches are halved. Memory."""

# How rows reach the engine.

INLINE_ROWS = 5_000
"""Up to this number of rows, rows of a table are sent to the engine together with the plan.

If there are more, the engine reads them from files. Benchmark: `benchmarks.increments` (below) and
`benchmarks` (above).
"""

INLINE_BYTES = 8 << 20
"""Below this size, rows are sent within the plan itself; larger rows are uploaded by the client.

Benchmark: `benchmarks.increments`.
"""

LISTED_FILES = 400
"""Up to this number of files, the engine gets the names of the files that a query must read.

If there are more files, the engine finds them in the transaction log.
Benchmark: `benchmarks.increments --growth`.
"""

LISTED_ARRIVALS = 16
"""Up to this number of arrivals, the watermarks after them are constants in the plan.

If there are more arrivals, the engine joins a table of watermarks. Benchmark:
`benchmarks.increments` (4 arrivals) and `benchmarks.latency` (a backlog).
"""

FILTER_RANGES = 100
"""Up to this number of ranges, a filter has a condition for each range.

If there are more ranges, the ranges nearest to each other are merged first.
Benchmark: `benchmarks.increments`.
"""

# How the engine plans.

INTERPRETED_ROWS = 5_000
"""Up to this number of rows per execution, a repeated query is interpreted; above it, compiled.

Benchmark: `benchmarks.increments` (below) and `benchmarks.latency` (above).
"""

ADAPTIVE_ROWS = 2_000_000
"""Up to this number of rows per execution, a repeated query has no adaptive execution.

Benchmark: `benchmarks` (1,000,000 rows per increment, and a backfill of 10,000,000).
"""

ADAPTIVE_PARTIALS = 500_000
"""Up to this number of stored partials, the query that merges them has no adaptive execution.

Benchmark: `benchmarks`.
"""

SMALL_QUERY_ROWS = 50_000
"""Up to this number of rows in each table, queries for a Dagster run's metadata are interpreted.

If a table has more rows, the queries are compiled. No benchmark measures this threshold.
"""

MEASURED_EVENTS = 2_000_000
"""Up to this number of events in an event log, each ingest in Dagster draws their lateness.

If there are more events, the ingest has no such chart. No benchmark measures this threshold.
"""

# Sizes of commits, files and batches.

COMMIT_BYTES = 128 << 20
"""The approximate size of a commit whose rows the connector has in memory.

While a commit is written and counted, the connector reads ahead as much again. Benchmark:
`benchmarks.latency` (a backlog); memory.
"""

FIRST_COMMIT_BYTES = COMMIT_BYTES // 4
"""The approximate size of the first commit after a poll.

The first commit is smaller than the following ones, because no run is counting while its rows are
read. Benchmark: `benchmarks.latency`.
"""

KAFKA_ARRIVAL_BYTES = 16 << 20
"""The approximate size of an arrival from Kafka. All its records are in memory at once. Memory."""

KAFKA_POLL_RECORDS = 10_000
"""Maximum number of records that are taken from Kafka's client at once. Benchmark:
`benchmarks.latency`.
"""

FILE_BLOCK_BYTES = 8 << 20
"""The approximate size of the part of a file that is decoded at once. Memory."""

PARQUET_BATCH_ROWS = 1 << 16
"""Maximum number of rows of a Parquet file that are decoded at once. Memory."""

LOG_FILE_BYTES = 32 << 20
"""The approximate size of a file that an ingest writes to an event log. Benchmark:
`benchmarks.latency` (a backlog).
"""

STAGED_FILE_ROWS = 500_000
"""Maximum number of rows in a file that the engine writes from one partition.

If the rows are sorted by arrival, each file contains a range of arrivals, and readers skip the
files with other ranges. Benchmark: `benchmarks.joins`.
"""

COMPACTED_FILE_BYTES = 128 << 20
"""The target size of a file that compaction writes."""

SMALL_FILE_DIVISOR = 4
"""Compaction rewrites only files that are smaller than its target size divided by this number."""

INTERIM_FILE_BYTES = 16 << 20
"""The target size of a file that a compaction between commits writes.

Benchmark: `benchmarks.increments --growth`.
"""

COMPACTION_COMMITS = 50
"""The number of commits from one compaction between commits to the next.

Benchmark: `benchmarks.increments --growth`.
"""

COMPACTION_FILES = 50
"""Up to this number of small files, a compaction between commits does not change a table.

Benchmark: `benchmarks.increments --growth`.
"""

NEWEST_ROWS = 2_500
"""The number of rows, of the newest windows, that a compaction keeps apart from older windows.

Each merge rewrites these rows. If there are fewer, a merge costs no less, but there are more files.
Benchmark: `benchmarks.latency`, with many rounds.
"""

ROW_GROUP_ROWS = 50_000
"""The number of rows in a row group of a compacted file. Readers skip row groups by statistics."""

REPUBLISHED_COMMITS = 100
"""Up to this number of commits that a table has lost, each is published again as it was.

If there are more, they are recomputed together. No benchmark measures this threshold.
"""

TRANSACTION_VERSIONS = 50
"""Maximum number of versions of a table that one Kafka transaction publishes. Memory."""

SINK_BATCH_WINDOWS = 2_000
"""Maximum number of windows whose rows a sink holds as Python objects at one time. Memory."""
