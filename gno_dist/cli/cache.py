"""``cache info|clear``: stage results and indexes kept between jobs."""

import shutil

import typer

from gno_dist.backends.paths import cache_folder, index_folder, reply_cache_file
from gno_dist.cache import ReplyCache
from gno_dist.cli.console import app, errors_as_exit_codes, show

cache_app = typer.Typer(help="Stage results and indexes kept between jobs.", no_args_is_help=True)
app.add_typer(cache_app, name="cache")


@cache_app.command("info")
def info() -> None:
    """Where the cache is and how large."""
    with errors_as_exit_codes():
        show(f"folder: {cache_folder()}")
        path = reply_cache_file()
        if path.exists():
            cache = ReplyCache(path)
            show(f"stage results: {cache.count():,} in {path.stat().st_size / 1e6:,.1f} MB")
            cache.close()
        else:
            show("stage results: none")
        indexes = list(index_folder().glob("*.sqlite"))
        size = sum(index.stat().st_size for index in indexes)
        show(f"indexes: {len(indexes)} files, {size / 1e6:,.1f} MB")


@cache_app.command("clear")
def clear() -> None:
    """Remove all stage results and indexes; model files stay."""
    with errors_as_exit_codes():
        for suffix in ("", "-wal", "-shm"):
            path = reply_cache_file()
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        shutil.rmtree(index_folder(), ignore_errors=True)
        show(f"cleared {cache_folder()}")
