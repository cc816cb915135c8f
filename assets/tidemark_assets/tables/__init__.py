"""Assets of tables: event logs, windows and roll-ups."""
