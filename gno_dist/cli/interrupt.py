"""Ctrl-C and termination: the first stops a job in order, the second ends everything at once.

In order: no new work, what is finished stays, partial reports, workers ended. At once: every
process that this one started is killed, and nothing is waited for.
"""

import asyncio
import os
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import psutil

from gno_dist.cli.console import say

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130


class Interruptible:
    """Runs one coroutine and stops it on the first signal."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stopped = False

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run it to its end.

        Raises:
            KeyboardInterrupt: a signal stopped it, after it had cleaned up.
        """

        async def main() -> Any:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            if self.stopped:
                raise asyncio.CancelledError
            return await work

        try:
            return asyncio.run(main())
        except asyncio.CancelledError:
            if self.stopped:
                raise KeyboardInterrupt from None
            raise
        finally:
            work.close()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals until the body has ended, its clean-up included."""
        before = {number: signal.signal(number, self._hear) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.stopped:
            _end_at_once()
        self.stopped = True
        say("\nstopping: finished units are kept; once more ends everything at once")
        if self._task is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)


def _end_at_once() -> None:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
    os._exit(INTERRUPTED)
