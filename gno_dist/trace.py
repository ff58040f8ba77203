"""What one trial has produced so far: outputs, receipts, times and tokens; becomes its record.

Knows replies and faults; not which stage comes next.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gno_dist.calls import Fault, Reply
from gno_dist.records import (
    STAGES,
    Answer,
    Expansion,
    ScoredDoc,
    StageName,
    StageReceipt,
    StageState,
    Usage,
)
from gno_dist.redact import redactor


@dataclass
class Trace:
    """What a pipeline has produced so far; becomes the unit's record."""

    receipts: dict[StageName, StageReceipt] = field(default_factory=dict)
    stage_ms: dict[str, float] = field(default_factory=dict)
    judge_usage: Usage = Usage()
    system_usage: Usage = Usage()
    calls: int = 0
    cached_calls: int = 0
    details: tuple[str, ...] = ()
    ranking: tuple[ScoredDoc, ...] | None = None
    expansion: Expansion | None = None
    answer: Answer | None = None
    judgement: dict[str, Any] | None = None

    def ran(self, stage: StageName, count: int, reason: str | None = None) -> None:
        """Note that a stage ran and how long its list is."""
        self.receipts[stage] = _ran(stage, count, reason)

    def all_receipts(self) -> tuple[StageReceipt, ...]:
        """The receipts in pipeline order.

        A stage that nobody asked for, or that comes after a broken one, has none.
        """
        return tuple([self.receipts[stage] for stage in STAGES if stage in self.receipts])

    def absorb(self, stage: StageName, replies: Sequence[Reply | Fault]) -> list[Any]:
        """The values of a stage's replies.

        Raises:
            StageBroke: any of the calls gave no reply.
        """
        values = []
        for reply in replies:
            if isinstance(reply, Fault):
                state: StageState = "timed_out" if reply.timed_out else "failed"
                if reply.detail:
                    self.details = (*self.details, redactor().text(reply.detail))
                raise self.broke(stage, f"{reply.error}: {reply.message}", state)
            self.calls += 1
            self.cached_calls += reply.cached
            self.stage_ms[stage] = self.stage_ms.get(stage, 0.0) + reply.ms
            if stage == "judge":
                self.judge_usage += reply.usage
            else:
                self.system_usage += reply.usage
            values.append(reply.value)
        return values

    def broke(self, stage: StageName, reason: str, state: StageState = "failed") -> "StageBroke":
        """Note that a stage that was asked for did not run; the result is to be raised."""
        self.receipts[stage] = StageReceipt(
            stage=stage, state=state, reason=redactor().text(reason)
        )
        return StageBroke()


@lru_cache(maxsize=4096)
def _ran(stage: StageName, count: int, reason: str | None) -> StageReceipt:
    """Most trials' lists are equally long."""
    return StageReceipt(stage=stage, state="ran", count=count, reason=reason)


class StageBroke(Exception):
    """A stage did not run; its receipt says why."""
