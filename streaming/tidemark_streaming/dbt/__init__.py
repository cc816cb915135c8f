"""Marts: the dbt projects that read published tables."""
