"""The optional ``gno-dist.yaml``: how jobs run here unless a flag says otherwise."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from gno_dist.loading import Collector, UserModel

FILE_NAME = "gno-dist.yaml"


class Settings(UserModel):
    """Defaults of this machine or project; a flag or a suite's own value comes first."""

    version: Literal[1] = 1
    concurrency: int = Field(default=5, ge=1, le=1000)
    """Shards that are worked on at once."""
    attempt_timeout_s: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    """Deadline of one batch of calls."""
    cache: bool = True
    """Keep stage results between jobs."""
    pool: Literal["inline", "ray"] = "ray"
    results: str = "results"
    """Folder of job folders."""
    max_failed: int | None = Field(default=None, ge=0)
    """Failed units above this number stop a job."""
    min_coverage: float = Field(default=1.0, ge=0, le=1)
    """Least share of planned outcomes that must be scored."""


def load_settings(folder: Path) -> Settings:
    """Read ``gno-dist.yaml`` in ``folder``; the defaults when there is none.

    Raises:
        ConfigError: the file is wrong.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return Settings()
    problems = Collector()
    document = problems.read(path)
    settings = problems.validate(Settings, document, path) if document is not None else None
    if settings is None:
        problems.fail(str(path))
    return settings
