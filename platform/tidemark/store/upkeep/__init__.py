"""Keep tables small and consistent: compaction, retention, and deletion."""
