"""The actor: a host in a process of its own, with more threads that answer while it works."""

import os
import sys
import threading
from typing import Any, NoReturn

import psutil
import ray

from gno_dist.backends.host import Host
from gno_dist.calls import PoolSpec
from workers.autopsy import EXIT_MARK


class HostActor:
    """One warm backend; opened in ``start``, since an error in a constructor loses its type."""

    def __init__(self, spec: PoolSpec, threads: int) -> None:
        self._host = Host(spec, threads)
        _leave_a_trace_on_exit()

    @ray.method(concurrency_group="run")
    def start(self) -> dict[str, Any]:
        """Open the backend; facts about it."""
        return self._host.start()

    @ray.method(concurrency_group="run")
    def run(self, batch: bytes) -> tuple[bytes, float]:
        """Answer a batch of encoded calls, one a line; replies alike, and the seconds it took."""
        replies, seconds = self._host.timed(batch.split(b"\n"))
        return b"\n".join(replies), seconds

    @ray.method(concurrency_group="ctl")
    def beat(self) -> tuple[int, int]:
        """Process id and resident bytes; answered even while a batch runs."""
        return os.getpid(), psutil.Process().memory_info().rss

    @ray.method(concurrency_group="life")
    def live(self) -> None:
        """Never answers: the call fails when the process ends, even one that is idle."""
        threading.Event().wait()


def _leave_a_trace_on_exit() -> None:
    at_once = os._exit

    def exit_with_trace(status: int) -> NoReturn:
        print(EXIT_MARK, status, file=sys.__stderr__, flush=True)
        at_once(status)

    os._exit = exit_with_trace
