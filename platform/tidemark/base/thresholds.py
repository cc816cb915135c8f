"""The thresholds that choose between two ways to compute the same result.

Results never depend on them: tests set them to their extremes. Each name ends with its unit. Each
docstring names the ways, and the benchmark whose workloads are on both sides, or that measures the
way that it limits. Measure with it before you change a value. *Memory* means that the value bounds
the memory of one step, which `python -m benchmarks` reports as the peak.
"""

# In this process, or in the engine.

SMALL_BATCH_ROWS = 20_000
"""Up to this number of rows, this process computes with Arrow, and the engine interprets plans.

More rows stay in the engine, which compiles its plans. Benchmark: `benchmarks.increments` (below)
and `benchmarks` (above).
"""

SMALL_BATCH_BYTES = 4 << 20
"""Up to this size of the files of a commit, its rows count as a small batch, if they are few.

Benchmark: `benchmarks.increments` (below) and `benchmarks` (above).
"""

IN_MEMORY_PARTIALS = 50_000
"""Up to this number of stored partials or window rows, this process merges them.

The engine merges more. Benchmark: `benchmarks.increments --growth` (below) and `benchmarks`
(above).
"""

VALIDATED_ROWS = 100_000
"""Up to this number of window rows, validated rows are in memory at once; more are processed in
chunks of this size.

Benchmark: `benchmarks.checks` (below); memory.
"""

GATHERED_BYTES = 256 << 20
"""Up to this size, rows that are read only once are gathered in memory; more go to files. Memory.
"""

SINGLE_RECORDS = 64
"""Up to this number of records, a batch with an irregular record is decoded record by record.

Larger batches are halved. Benchmark: `benchmarks.latency`.
"""

JSON_BATCH_BYTES = 1 << 28
"""Up to this size, Arrow decodes a batch of JSON at once; larger batches are halved. Memory."""

# How rows reach the engine.

INLINE_ROWS = 5_000
"""Up to this number of rows, they are sent to the engine with the plan; it reads more from files.

Benchmark: `benchmarks.increments` (below) and `benchmarks` (above).
"""

INLINE_BYTES = 8 << 20
"""Below this size, rows are sent within the plan itself; the client uploads larger ones.

Benchmark: `benchmarks.increments`.
"""

LISTED_FILES = 400
"""Up to this number of files, the engine gets their names; otherwise it reads the transaction log.

Benchmark: `benchmarks.increments --growth`.
"""

LISTED_ARRIVALS = 16
"""Up to this number of arrivals, their watermarks are constants in the plan; the engine joins more.

Benchmark: `benchmarks.increments` (4 arrivals) and `benchmarks.latency` (a backlog).
"""

FILTER_RANGES = 100
"""Up to this number of ranges, a filter names each; more are merged, the nearest ones first.

Benchmark: `benchmarks.increments`.
"""

# How the engine plans.

INTERPRETED_ROWS = 5_000
"""Up to this number of rows per execution, a repeated query is interpreted; otherwise compiled.

Benchmark: `benchmarks.increments` (below) and `benchmarks.latency` (above).
"""

ADAPTIVE_ROWS = 2_000_000
"""Up to this number of rows per execution, a repeated query has no adaptive execution.

Benchmark: `benchmarks` (1,000,000 rows per increment, and a backfill of 10,000,000).
"""

ADAPTIVE_PARTIALS = 500_000
"""Up to this number of stored partials, merging them has no adaptive execution.

Benchmark: `benchmarks`.
"""

SMALL_QUERY_ROWS = 50_000
"""Up to this number of windows, the query of a partition's measures is interpreted.

Not measured by a benchmark.
"""

MEASURED_EVENTS = 2_000_000
"""Up to this number of events in an event log, each ingest measures their lateness for a chart.

Not measured by a benchmark.
"""

# Sizes of commits, files and batches.

COMMIT_BYTES = 128 << 20
"""The approximate size of a commit, if the connector has its rows in memory.

The same amount is read ahead while the commit is written and counted. Benchmark:
`benchmarks.latency` (a backlog); memory.
"""

FIRST_COMMIT_BYTES = COMMIT_BYTES // 4
"""The approximate size of the first commit after a poll.

It is smaller, because no run is counting while it is read. Benchmark: `benchmarks.latency`.
"""

KAFKA_ARRIVAL_BYTES = 16 << 20
"""The approximate size of an arrival from Kafka, whose records are in memory at once. Memory."""

KAFKA_POLL_RECORDS = 10_000
"""The number of records that are taken from Kafka's client at once. Benchmark:
`benchmarks.latency`.
"""

FILE_BLOCK_BYTES = 8 << 20
"""The approximate size of the part of a file that is decoded at once. Memory."""

PARQUET_BATCH_ROWS = 1 << 16
"""The number of rows of a Parquet file that are decoded at once. Memory."""

LOG_FILE_BYTES = 32 << 20
"""The approximate size of a file that an ingest writes to an event log. Benchmark:
`benchmarks.latency` (a backlog).
"""

STAGED_FILE_ROWS = 500_000
"""Up to this number of rows, rows that the engine writes from one partition are one file.

If they are in order, each file is a range of arrivals, and readers skip the others. Benchmark:
`benchmarks.joins`.
"""

COMPACTED_FILE_BYTES = 128 << 20
"""The target size of a file that compaction writes."""

SMALL_FILE_DIVISOR = 4
"""Compaction rewrites files below its target size divided by this; others stay as they are."""

INTERIM_FILE_BYTES = 16 << 20
"""The target size of a file that a compaction between commits writes.

Benchmark: `benchmarks.increments --growth`.
"""

COMPACTION_COMMITS = 50
"""The number of commits between two such compactions. Benchmark: `benchmarks.increments --growth`.
"""

COMPACTION_FILES = 50
"""Up to this number of small files, a compaction between commits leaves a table as it is.

Benchmark: `benchmarks.increments --growth`.
"""

ROW_GROUP_ROWS = 50_000
"""The rows of a row group in a compacted file, which a reader can skip by its statistics."""

REPUBLISHED_COMMITS = 100
"""Up to this number, lost commits are published again one by one; more are recomputed together.

Not measured by a benchmark.
"""

TRANSACTION_VERSIONS = 50
"""The number of versions of a table that one Kafka transaction publishes at most. Memory."""

SINK_BATCH_WINDOWS = 2_000
"""The number of windows whose rows are Python objects at the same time in a sink. Memory."""
