"""The Dagster definitions of extras, one module for each. No other code imports these modules."""
