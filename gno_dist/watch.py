"""Writing a job's status beside its journal while it runs, so that others can look.

Gathers what flow, reducer and pools say; knows nothing of consoles. A status that cannot be written
stops no job.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gno_dist import files
from gno_dist.flow import Flow
from gno_dist.plan import Plan
from gno_dist.reduce import Reducer
from gno_dist.status import METRICS_FILE, STATUS_FILE, STATUS_VERSION, exposition

WRITE_EVERY_S = 2.0
SHOWN_IN_FLIGHT = 8


class StatusWriter:
    """Writes ``status.json`` and ``metrics.prom`` into a job folder."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        reducer: Reducer,
        flow: Flow,
        run_so_far: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._reducer = reducer
        self._flow = flow
        self._run_so_far = run_so_far
        self._started = datetime.now(UTC)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write every few seconds while the body runs."""
        task = asyncio.create_task(self._keep_writing())
        try:
            yield
        finally:
            task.cancel()

    async def _keep_writing(self) -> None:
        while True:
            self.write("running")
            await asyncio.sleep(WRITE_EVERY_S)

    def write(self, state: str) -> None:
        """Write the status now; ``state``: running, finished or stopped."""
        status = self._document(state)
        with suppress(OSError):  # a full disk: the journal says so, and stops the job
            files.write_json(self._folder / STATUS_FILE, status)
            files.write_text(self._folder / METRICS_FILE, exposition(status))

    def _document(self, state: str) -> dict[str, Any]:
        run = self._run_so_far()
        return {
            "version": STATUS_VERSION,
            "state": state,
            "name": self._plan.name,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started": self._started.isoformat(timespec="seconds"),
            "updated": datetime.now(UTC).isoformat(timespec="seconds"),
            "updated_unix": time.time(),
            "units": {
                "planned": self._plan.n_units,
                "done": self._reducer.n_units,
                "failed": self._reducer.n_failed,
                "run_now": run["units_run"],
            },
            "wall_s": run["wall_s"],
            "calls": {"made": run["calls_made"], "shared": run["calls_shared"]},
            "stage_s": run["stage_s"],
            "worker_s": run["worker_s"],
            "lost": run["lost"],
            "in_flight": [str(item) for item in self._flow.in_flight[:SHOWN_IN_FLIGHT]],
            "usage": asdict(self._reducer.usage),
            "peak_rss_bytes": run["peak_rss_bytes"],
        }
