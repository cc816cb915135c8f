"""A campaign of faults: real SIGKILLs under load, and then: was every event counted exactly once?

A producer numbers its events and sends them to a broker. `tidemark ingest --follow` brings them in,
`tidemark stream` counts them and publishes the counts to tables and to a topic. Now and then one of
these, or two, are killed: the engine, its Python worker, the ingest, the stream, the broker, at a
random moment, or whoever reaches a fail point next. In the second part Dagster's daemon looks
after the stream instead of a terminal, and is killed as well.

It has recovered once what was killed is back and an arrival that came after the kill is published.
"""
