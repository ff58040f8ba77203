"""Sizes of workers as earlier runs measured them: what placement knows better than an estimate.

A small file in the cache folder; without it, or with a broken one, estimates do.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gno_dist import files
from gno_dist.errors import ConfigError


def read_measured(path: Path | None) -> dict[str, int]:
    """Pool key -> greatest resident bytes of one worker."""
    if path is None or not path.is_file():
        return {}
    with suppress(ConfigError):
        known = files.read_structured(path)
        if isinstance(known, dict):
            return {str(key): size for key, size in known.items() if isinstance(size, int)}
    return {}


def keep_measured(path: Path | None, peaks: Mapping[str, int]) -> None:
    """Add what this run measured; a greater size stays. An unwritable file is no fault."""
    if path is None or not peaks:
        return
    known = read_measured(path)
    sizes = {key: max(known.get(key, 0), size) for key, size in peaks.items()}
    with suppress(OSError):
        files.write_json(path, {**known, **sizes})
