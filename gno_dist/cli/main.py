"""The command ``gno-dist``: gathers the command groups."""

from gno_dist.cli import cache, doctor, inspect, models, run, schema, status
from gno_dist.cli.console import app, main

GROUPS = (run, inspect, doctor, models, schema, cache, status)

__all__ = ["GROUPS", "app", "main"]

if __name__ == "__main__":
    main()
