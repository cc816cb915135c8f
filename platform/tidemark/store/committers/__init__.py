"""Commit to Tidemark's tables with delta-rs.

Only Tidemark may write to its tables. The engine's log store for local files checks that a commit's
file does not exist, then renames over it. It could therefore silently replace a commit that was
reported as done.
"""
