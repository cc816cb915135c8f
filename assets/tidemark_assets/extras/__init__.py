"""The Dagster definitions of extras, a module for each; no other module imports them."""
