"""Prepare events: mark duplicates, and call the asset's function.

`plan_check` checks that the function works row by row.
"""
