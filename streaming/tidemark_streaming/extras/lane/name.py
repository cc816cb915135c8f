"""The name of lanes as an extra: of their command, and of its records of running commands."""

NAME = "lane"
