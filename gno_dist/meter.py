"""What a pool's workers do with their time: loading, working, queueing, idle; and how they end.

Counts seconds that pools report. Knows no pool and no call; nothing in it decides a result.
"""

import time
from collections import Counter
from typing import NamedTuple

from gno_dist.errors import LostReason


class Shares(NamedTuple):
    """Seconds of all workers of a pool; they add up to the workers' lifetimes."""

    loading: float
    """Starting and opening the backend."""
    working: float
    """Inside a batch."""
    queueing: float
    """A batch was handed over and not worked on: it travelled, or its reply did."""
    idle: float
    """Nothing to do."""


class Meter:
    """Times of one pool's workers; a worker is any key that stays its own."""

    def __init__(self) -> None:
        self._since: dict[object, float] = {}
        self._lifetime = 0.0
        self._loading = self._working = self._queueing = 0.0
        self.batches = 0
        self.lost: Counter[LostReason] = Counter()
        self.peak_rss = 0
        """Greatest resident bytes of one worker; 0 where workers have no process of their own."""

    def started(self, worker: object) -> None:
        """A worker begins to load."""
        self._since[worker] = time.monotonic()

    def loaded(self, worker: object) -> None:
        """It is warm."""
        self._loading += time.monotonic() - self._since[worker]

    def worked(self, inside_s: float, outside_s: float) -> None:
        """A batch came back: seconds inside the worker, and as its caller saw it."""
        self.batches += 1
        self._working += inside_s
        self._queueing += max(0.0, outside_s - inside_s)

    def ended(self, worker: object) -> None:
        """It is gone, for whatever reason; a second end does nothing."""
        if (since := self._since.pop(worker, None)) is not None:
            self._lifetime += time.monotonic() - since

    def shares(self) -> Shares:
        """So far, workers that live included."""
        now = time.monotonic()
        lifetime = self._lifetime + sum(now - since for since in self._since.values())
        busy = self._loading + self._working + self._queueing
        return Shares(self._loading, self._working, self._queueing, max(0.0, lifetime - busy))
