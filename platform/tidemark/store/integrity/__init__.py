"""Check, without the engine, whether the tables of a home belong together.

Tables are committed to in this order: event log and dead letters, timeline, state, the tables that
a run publishes, ledger. Each commit *vouches* for the tables that come earlier in this order: it
records their versions, and a digest of their data files, as Delta application transactions
(`vouching`). After a power cut, or in a copy made of a live home, a table may lack commits that a
later table depends on. The check finds such a table before the next commit to it. The check reads
transaction logs, file sizes and a few columns.

| table | requirement |
| --- | --- |
| any | the commits since its newest checkpoint are intact, and all data files have their full |
| | size (on a local disk) |
| event log, dead letters | at or after the version that the timeline vouches for, which has the |
| | same files as then; all rows exist |
| timeline | has each arrival once, from 0 on, each with the identity of the one before it, and |
| | those whose rows an asset or a derived source has read, if the event log still has the rows |
| state | has every commit that the asset's other tables and the ledger have |
| asset's tables, validation results | at or after the version that the ledger vouches for, which |
| | has the same files as then |
| published table | at or after the version that the quarantine vouches for: has all released rows |
| ledger | has all commits of the state, except those that the next run can still publish |

Tables are read in the opposite order of their commits, so that runs in parallel do not cause false
findings. A finding counts only if a second check confirms it.

A source whose tables were all restored from the same earlier copy is not damaged: they belong
together, and an ingest reads the lost arrivals again. What was computed from these arrivals is
stale (`store.lineage`).
"""
