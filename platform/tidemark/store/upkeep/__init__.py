"""Keep tables small and consistent: compaction, retention, repair, and deletion."""
