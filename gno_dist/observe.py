"""Watching this process and its children: peak memory, for the record and for people."""

import threading

import psutil


class MemoryWatch:
    """Samples resident memory of the process tree; shared pages count once a process."""

    def __init__(self, every_s: float = 0.5) -> None:
        self._every_s = every_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gno-dist memory", daemon=True)
        self.peak_bytes = 0

    def __enter__(self) -> "MemoryWatch":
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(self._every_s):
            self._sample()

    def _sample(self) -> None:
        total = 0
        try:
            own = psutil.Process()
            processes = [own, *own.children(recursive=True)]
        except psutil.Error:
            return
        for process in processes:
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue  # it ended between the listing and the look
        self.peak_bytes = max(self.peak_bytes, total)
