"""Basics that all other packages of the streaming layer use."""
