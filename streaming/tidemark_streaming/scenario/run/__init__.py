"""Run a scenario, and compare its result with the expected one."""
