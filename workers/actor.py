"""The actor: a host in a process of its own, with a second thread that answers while it works."""

import os
from collections.abc import Sequence
from typing import Any

import ray

from gno_dist.backends.host import Host
from gno_dist.calls import PoolSpec


class HostActor:
    """One warm backend; opened in ``start``, since an error in a constructor loses its type."""

    def __init__(self, spec: PoolSpec, threads: int) -> None:
        self._host = Host(spec, threads)

    @ray.method(concurrency_group="run")
    def start(self) -> dict[str, Any]:
        """Open the backend; facts about it."""
        return self._host.start()

    @ray.method(concurrency_group="run")
    def run(self, batch: Sequence[bytes]) -> list[bytes]:
        """Answer a batch of encoded calls."""
        return self._host.run(batch)

    @ray.method(concurrency_group="ctl")
    def pid(self) -> int:
        """The process id; answered even while a batch runs."""
        return os.getpid()
