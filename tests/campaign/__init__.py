"""A campaign of faults: real SIGKILLs under load, and then: was every event counted exactly once?

A producer numbers its events and sends them to a broker. `tidemark ingest --follow` brings them in,
`tidemark stream` counts them and publishes the counts to tables and to a topic. Now and then one of
these, or two, are killed: the engine, its Python worker, the ingest, the stream, the broker, at a
random moment, or whoever reaches a fail point next; the broker may stay away for a minute, and a
command that rebuilds the tables, or switches to them, is killed amid its work. In the second part
there is no stream: the ingest counts what it brings in. In the third Dagster's daemon looks after
the stream instead of a terminal, and is killed as well.

It has recovered once what was killed is back and an arrival that came after the kill is published,
in the table and in the topic.
"""
