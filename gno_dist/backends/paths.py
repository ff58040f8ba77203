"""Where this machine keeps what can be made again: indexes, models, cached replies.

``$GNO_DIST_CACHE`` or the platform's cache folder. Nothing in it is the only copy of anything.
"""

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """The cache folder; not created here."""
    named = os.environ.get("GNO_DIST_CACHE")
    return Path(named).expanduser() if named else user_cache_path("gno-dist")


def model_folder() -> Path:
    """Where model files are looked for: ``$GNO_DIST_MODELS`` or ``models`` in the cache folder."""
    named = os.environ.get("GNO_DIST_MODELS")
    return Path(named).expanduser() if named else cache_folder() / "models"


def index_folder() -> Path:
    """Where indexes are kept, one file an index part, named by its digest."""
    return cache_folder() / "indexes"


def measured_file() -> Path:
    """The sizes of workers in earlier runs."""
    return cache_folder() / "workers.json"


def reply_cache_file() -> Path:
    """The SQLite file of cached stage results."""
    return cache_folder() / "replies.sqlite"
