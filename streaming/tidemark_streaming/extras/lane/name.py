"""The name of the command of lanes, which is also the `kind` of running lanes in `foreground`."""

NAME = "lane"
