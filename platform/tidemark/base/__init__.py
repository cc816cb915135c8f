"""Basics that all other packages use: errors, settings, instants."""
