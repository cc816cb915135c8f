"""Commands for dbt projects."""
