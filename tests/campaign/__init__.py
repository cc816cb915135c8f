"""A fault campaign: SIGKILLs under load, then a check that every event was counted exactly once.

A producer sends numbered events to a broker. `tidemark ingest --follow` ingests them. `tidemark
stream` counts them and publishes the counts to tables and a topic. At random moments one or two
processes are killed: the engine, its Python worker, the ingest, the stream or the broker. A kill
may also hit the next process that reaches a fail point, or a command that rebuilds or promotes
tables. The broker may be down for a minute. In the second part there is no stream: the ingest
runs the asset. In the third part Dagster's daemon supervises the stream and is killed too.

A kill has recovered once the killed process runs again and an arrival from after the kill is
published in the table and in the topic.
"""
