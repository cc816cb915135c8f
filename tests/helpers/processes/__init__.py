"""Processes of tests: commands, disks, clocks and other users."""
