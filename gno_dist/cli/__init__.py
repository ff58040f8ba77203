"""The command line: one file a command group; the only place that may import workers."""
