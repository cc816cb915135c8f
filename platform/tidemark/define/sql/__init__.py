"""Definitions of windowed assets in SQL.

| module | reads |
| --- | --- |
| `sql_text` | a text as tokens with their positions |
| `statement` | the clauses of a `SELECT` |
| `expression` | an expression over the source's columns |
| `table_function` | the windows: `TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' HOUR)` |
| `aggregate_call` | an aggregate: `SUM(amount) FILTER (WHERE paid)` |
| `query` | a whole definition |
| `sql_asset` | the public function |
"""
