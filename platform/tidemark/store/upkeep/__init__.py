"""Keep tables small and whole: compaction, retention, repair, and deletion."""
