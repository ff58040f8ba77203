"""Progress on stderr: a live line on a terminal, plain or JSON lines every few seconds in a log."""

import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any, Literal

from gno_dist import files
from gno_dist.calls import PoolSpec
from gno_dist.errors import WorkerLost
from gno_dist.plan import Plan
from gno_dist.records import UnitRecord, Usage
from gno_dist.redact import redactor
from gno_dist.report.text import dollars, seconds

PLAIN_EVERY_S = 5.0
ProgressKind = Literal["text", "json", "none"]


class Progress:
    """Counts finished units and shows how far a job is; use as a context manager."""

    def __init__(self, plan: Plan, done: int, kind: ProgressKind = "text") -> None:
        self._planned = plan.n_units
        self._before = self._done = done
        self._failed = 0
        self._usage = Usage()
        self._started = time.monotonic()
        self._kind = kind
        self._terminal = kind == "text" and sys.stderr.isatty()
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
        text = f"opened {spec.label}: {workers}, {seconds(load)}"
        self._say("opened", text, pool=spec.label, workers=len(facts), load_s=load)

    def on_loss(self, lost: WorkerLost, n_calls: int) -> None:
        """Say that a worker was lost, and why."""
        text = f"{lost}; {n_calls} call{'s' * (n_calls != 1)} will run again"
        fields = {"pool": lost.backend, "reason": lost.reason, "detail": lost.detail}
        self._say("worker lost", text, calls=n_calls, **fields)

    def on_stall(self, message: str) -> None:
        """Say that nothing moves, and what is in flight."""
        self._say("stall", message)

    def numbers(self) -> dict[str, Any]:
        """What the line shows."""
        elapsed = time.monotonic() - self._started
        rate = (self._done - self._before) / elapsed if elapsed > 0 else 0.0
        return {
            "done": self._done,
            "planned": self._planned,
            "units_per_s": rate,
            "left_s": (self._planned - self._done) / rate if rate > 0 else None,
            "failed": self._failed,
            "new_tokens": self._usage.input_tokens + self._usage.output_tokens,
            "cost_usd": self._usage.cost_usd,
        }

    def line(self) -> str:
        """done/total, rate, time left if the rest is alike, failures, tokens, cost."""
        now = self.numbers()
        left = "?" if now["left_s"] is None else seconds(now["left_s"])
        share = 100.0 * self._done / self._planned if self._planned else 100.0
        return (
            f"{self._done}/{self._planned} {share:.1f} % | {now['units_per_s']:.2f} units/s |"
            f" {left} left at this rate | failed {self._failed} |"
            f" {now['new_tokens']:,} new tokens | {dollars(self._usage.cost_usd)}"
        )

    def _tick(self) -> None:
        every = 0.5 if self._terminal else PLAIN_EVERY_S
        while not self._ended.wait(every):
            if self._terminal:
                print(f"\r\x1b[K{self.line()}", end="", file=sys.stderr, flush=True)
            else:
                self._show_progress()

    def _show_progress(self) -> None:
        if self._kind == "json":
            self._say("progress", "", **self.numbers())
        else:
            self._say("progress", self.line())

    def _say(self, event: str, text: str, **fields: Any) -> None:
        if self._kind == "none":
            return
        text = redactor().text(text)
        if self._kind == "json":
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            entry = {"time": now, "event": event, **({"message": text} if text else {}), **fields}
            line = redactor().json(files.json_bytes(entry)).decode("utf-8")
            print(line, end="", file=sys.stderr, flush=True)
            return
        start = "\r\x1b[K" if self._terminal else ""
        print(f"{start}{text}", file=sys.stderr, flush=True)

    def __enter__(self) -> "Progress":
        if self._kind != "none":
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        if self._kind != "none":
            self._thread.join()
            self._show_progress()
