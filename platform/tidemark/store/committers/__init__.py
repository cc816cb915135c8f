"""Commit to Tidemark's tables with delta-rs.

Only Tidemark may write to its tables. The engine's log store for local files first checks that a
commit's file does not exist, and then renames its own file to that name. It could therefore
silently replace a commit that another writer made, and reported as done, between the two steps.
"""
