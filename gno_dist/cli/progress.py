"""Progress on stderr: a live line on a terminal, a plain line every few seconds in a log."""

import sys
import threading
import time
from typing import Any

from gno_dist.calls import PoolSpec
from gno_dist.plan import Plan
from gno_dist.records import UnitRecord, Usage
from gno_dist.report.text import dollars, seconds

PLAIN_EVERY_S = 5.0


class Progress:
    """Counts finished units and shows how far a job is; use as a context manager."""

    def __init__(self, plan: Plan, done: int, *, quiet: bool = False) -> None:
        self._planned = plan.n_units
        self._before = self._done = done
        self._failed = 0
        self._usage = Usage()
        self._started = time.monotonic()
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="gno-dist progress", daemon=True)

    def on_record(self, record: UnitRecord) -> None:
        """Count a finished unit."""
        self._done += 1
        self._failed += record.failed
        self._usage += record.observed.judge_usage + record.observed.system_usage

    def on_open(self, spec: PoolSpec, facts: list[dict[str, Any]]) -> None:
        """Say that a backend is warm."""
        workers = f"{len(facts)} workers" if len(facts) > 1 else "1 worker"
        load = max(fact["load_s"] for fact in facts)
        self._print(f"opened {spec.label}: {workers}, {seconds(load)}")

    def line(self) -> str:
        """done/total, rate, time left if the rest is alike, failures, tokens, cost."""
        elapsed = time.monotonic() - self._started
        rate = (self._done - self._before) / elapsed if elapsed > 0 else 0.0
        left = seconds((self._planned - self._done) / rate) if rate > 0 else "?"
        share = 100.0 * self._done / self._planned if self._planned else 100.0
        used = self._usage.input_tokens + self._usage.output_tokens
        return (
            f"{self._done}/{self._planned} {share:.1f} % | {rate:.2f} units/s |"
            f" {left} left at this rate | failed {self._failed} |"
            f" {used:,} new tokens | {dollars(self._usage.cost_usd)}"
        )

    def _tick(self) -> None:
        every = 0.5 if self._terminal else PLAIN_EVERY_S
        while not self._ended.wait(every):
            if self._terminal:
                print(f"\r\x1b[K{self.line()}", end="", file=sys.stderr, flush=True)
            else:
                print(self.line(), file=sys.stderr, flush=True)

    def _print(self, text: str) -> None:
        if not self._quiet:
            start = "\r\x1b[K" if self._terminal else ""
            print(f"{start}{text}", file=sys.stderr, flush=True)

    def __enter__(self) -> "Progress":
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        if not self._quiet:
            self._thread.join()
            self._print(self.line())
