"""Driving the pipelines of a shard in step, so that equal calls are made once.

Stage by stage: collect what the pipelines ask, look in the cache, join calls already under way in
another lane, make the rest, hand every reply back. Knows pools and cache; not what a stage means.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gno_dist import pipelines
from gno_dist.cache import ReplyCache
from gno_dist.calls import Call, Fault, Reply
from gno_dist.dispatch import Dispatcher
from gno_dist.pipelines import Ask, Pipeline
from gno_dist.plan import Unit
from gno_dist.pool import PoolSet
from gno_dist.records import STAGES, UnitRecord
from gno_dist.trace import Trace
from gno_dist.trials import Passage, record_of, setting_of

PassageOf = Callable[[Unit], Passage]


class _Running(NamedTuple):
    unit: Unit
    trace: Trace
    pipeline: Pipeline


class InFlight(NamedTuple):
    """Units that wait for the replies of one stage."""

    stage: str
    units: Sequence[Unit]
    since: float
    """``time.monotonic()`` when they were asked for."""

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.units[:3]))
        more = f" and {len(self.units) - 3} more" if len(self.units) > 3 else ""
        return f"{self.stage} of {shown}{more} ({time.monotonic() - self.since:.0f} s)"


class Flow:
    """Runs shards; several lanes may call ``run`` at once."""

    def __init__(
        self,
        pools: PoolSet,
        cache: ReplyCache,
        passage_of: PassageOf,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        self.dispatcher = dispatcher or Dispatcher()
        self._pools = pools
        self._cache = cache
        self._passage_of = passage_of
        self._under_way: dict[str, asyncio.Future[Reply | Fault]] = {}
        self.made_calls = 0
        self.shared_calls = 0
        self.stage_s: dict[str, float] = {}
        """Service seconds of the calls that were made, by stage."""
        self._in_flight: dict[int, InFlight] = {}
        self._shards = 0

    @property
    def in_flight(self) -> list["InFlight"]:
        """What every lane is working on, the oldest first."""
        return list(self._in_flight.values())

    async def run(self, units: Sequence[Unit]) -> list[UnitRecord]:
        """Run the units' pipelines to their end; one record a unit, in order.

        Raises:
            BackendError: a backend cannot be opened: no case is to blame.
        """
        self._shards += 1
        shard = self._shards
        try:
            return await self._run(units, shard)
        finally:
            self._in_flight.pop(shard, None)

    async def _run(self, units: Sequence[Unit], shard: int) -> list[UnitRecord]:
        running: dict[int, tuple[_Running, Ask]] = {}
        finished: list[tuple[Unit, Trace]] = []
        for unit in units:
            trace = Trace()
            pipeline = pipelines.run(unit.case, setting_of(unit, self._passage_of(unit)), trace)
            ask = next(pipeline, None)
            finished.append((unit, trace))
            if ask is not None:
                running[unit.number] = (_Running(unit, trace, pipeline), ask)
        for stage in STAGES:
            while waiting := {i: pair for i, pair in running.items() if pair[1].stage == stage}:
                waited_for = [state.unit for state, _ in waiting.values()]
                self._in_flight[shard] = InFlight(stage, waited_for, time.monotonic())
                replies = await self._replies(
                    [call for _, ask in waiting.values() for call in ask.calls]
                )
                for index, (state, ask) in waiting.items():
                    following = _advance(state.pipeline, [replies[call.id] for call in ask.calls])
                    if following is None:
                        del running[index]
                    else:
                        running[index] = (state, following)
        return [record_of(unit, trace) for unit, trace in finished]

    async def _replies(self, calls: Sequence[Call]) -> Mapping[str, Reply | Fault]:
        """A reply or fault for every call id; each id is answered once."""
        unique = {call.id: call for call in calls}
        self.shared_calls += len(calls) - len(unique)
        found: dict[str, Reply | Fault] = dict(self._cache.get_many(list(unique)))
        unknown = [key for key in unique if key not in found]
        joined = {key: self._under_way[key] for key in unknown if key in self._under_way}
        missing = [unique[key] for key in unknown if key not in joined]
        self.shared_calls += len(found) + len(joined)
        by_pool: dict[str, list[Call]] = {}
        loop = asyncio.get_running_loop()
        for call in missing:
            by_pool.setdefault(call.pool, []).append(call)
            self._under_way[call.id] = loop.create_future()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._make(key, part)) for key, part in by_pool.items()]
        finally:
            for call in missing:
                future = self._under_way.pop(call.id)
                if not future.done():
                    future.cancel()
        for task in tasks:
            found.update(task.result())
        for key, future in joined.items():
            found[key] = await future
        return found

    async def _make(self, key: str, calls: Sequence[Call]) -> dict[str, Reply | Fault]:
        pool = await self._pools.get(key)
        replies = await self.dispatcher.answer(pool, calls)
        self.made_calls += len(calls)
        pairs = list(zip((call.id for call in calls), replies, strict=True))
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, Reply):
                spent = self.stage_s.get(call.stage, 0.0) + reply.ms / 1000.0
                self.stage_s[call.stage] = spent
        self._cache.put_many((key, r) for key, r in pairs if isinstance(r, Reply))
        for call_id, reply in pairs:
            future = self._under_way[call_id]
            if not future.done():
                future.set_result(reply)
        return dict(pairs)


def _advance(pipeline: Pipeline, replies: Sequence[Reply | Fault]) -> Ask | None:
    try:
        return pipeline.send(replies)
    except StopIteration:
        return None
