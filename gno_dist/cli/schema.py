"""``schema``: the JSON Schemas of the file formats."""

from typing import Annotated

import typer

from gno_dist import schemas
from gno_dist.cli.console import app, errors_as_exit_codes, show
from gno_dist.data import data_folder
from gno_dist.errors import ConfigError


@app.command()
def schema(
    write: Annotated[bool, typer.Option("--write", help="Write those that differ.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 when any differs.")] = False,
) -> None:
    """Write or check the JSON Schemas in schemas/, which are generated from the models."""
    with errors_as_exit_codes():
        if write == check:
            raise ConfigError("schema", ["give exactly one of --write and --check"])
        folder = data_folder("schemas")
        changed = schemas.write(folder) if write else schemas.differences(folder)
        for name in changed:
            show(f"{'wrote' if write else 'differs'}: {folder / name}")
        if not changed:
            show(f"{len(schemas.MODELS)} schemas are up to date")
        if check and changed:
            raise typer.Exit(1)
