"""Launch the engine's server: its Java, its jars, its class archive, and its command."""
