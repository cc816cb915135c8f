"""Basics that all other packages of the Dagster layer use."""
