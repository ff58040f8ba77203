"""Expanding suites x presets x trials into points, groups and units; pure.

Units stand in one fixed order (suite, case, point, trial) and carry ids that depend only on what
decides their result, so the same plan made anywhere, at any time, is the same plan. Groups say
which models must be open together; they change nothing in order or ids.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from gno_dist import canonical
from gno_dist.calls import PoolSpec
from gno_dist.cases import Case
from gno_dist.errors import ConfigError
from gno_dist.judges.labels import Questionnaire
from gno_dist.pipelines import Bound
from gno_dist.presets import Preset
from gno_dist.scoring import AnyMeasure, parse_any
from gno_dist.suite import LoadedSuite
from gno_dist.sweep import LoadedJob, PointSpec, SuiteJob

UNIT_VERSION = 1

PoolsOf = Callable[[LoadedSuite, Preset], Mapping[str, PoolSpec]]
"""(suite, preset) -> role -> the pool that serves it, for the roles this suite needs there."""


class Point(NamedTuple):
    """One setting of all axes, in one suite: with the suite it is a cell of the report."""

    id: str
    spec: PointSpec
    pools: Mapping[str, Bound]
    cases: frozenset[str]

    @property
    def label(self) -> str:
        """For people: preset and varied settings."""
        return self.spec.label

    @property
    def pool_keys(self) -> frozenset[str]:
        """Keys of the pools this point calls."""
        return frozenset(bound.key for bound in self.pools.values())


class PlannedSuite(NamedTuple):
    """A suite with its points and its place in the order of units."""

    loaded: LoadedSuite
    points: Sequence[Point]
    trials: int
    first_index: int
    identity: str
    questionnaire: Questionnaire
    measures: Sequence[AnyMeasure]
    case_digests: bytes
    """32 bytes a case, in order: sha256 of its id with what the stages read of it."""

    @property
    def n_units(self) -> int:
        """Number of units of this suite."""
        return sum(len(point.cases) for point in self.points) * self.trials


class Unit(NamedTuple):
    """A case at a point in a trial: what one journal line is about."""

    number: int
    """Position in plan order, from 0."""
    id: str
    suite: PlannedSuite
    point: Point
    case: Case
    trial: int

    def __str__(self) -> str:
        trial = f" trial {self.trial}" if self.suite.trials > 1 else ""
        return f"{self.suite.loaded.name}/{self.case.id} @ {self.point.label}{trial}"

    def seed(self) -> int:
        """First 4 bytes of sha256(unit id), the seed of everything drawn in this trial."""
        return int(canonical.digest_bytes(self.id.encode("ascii"))[:8], 16)


class Group(NamedTuple):
    """Pools that are open together, and the points that need no others."""

    pools: frozenset[str]
    points: frozenset[tuple[str, str]]
    """(suite name, point id)."""


class Plan:
    """The expanded job. Units are generated, never held: a plan of a million units is small."""

    def __init__(self, job: LoadedJob, pools_of: PoolsOf, trials: int | None = None) -> None:
        """Expand a job.

        Args:
            job: the checked user files.
            pools_of: resolves backends to identities; called once a suite and point.
            trials: overrides the suites' own number.

        Raises:
            ConfigError: two points of a suite are one, since two references name one model.
        """
        self.name = job.name
        self.pools: dict[str, PoolSpec] = {}
        self.suites: list[PlannedSuite] = []
        first = 0
        for suite_job in job.suites:
            planned = self._plan_suite(suite_job, pools_of, trials, first)
            self.suites.append(planned)
            first += planned.n_units
        self.n_units = first

    def _plan_suite(
        self, job: SuiteJob, pools_of: PoolsOf, trials: int | None, first: int
    ) -> PlannedSuite:
        points = []
        for spec, cases in zip(job.points, job.cases_of, strict=True):
            bound = {}
            for role, pool in pools_of(job.loaded, spec.preset).items():
                key = pool.key
                self.pools[key] = _merged(self.pools.get(key), pool)
                bound[role] = Bound(key, pool)
            points.append(Point(_point_id(spec, bound), spec, bound, cases))
        _refuse_equal(points, job)
        identity = canonical.digest({"name": job.loaded.name, **job.loaded.identity()})
        suite = job.loaded.suite
        return PlannedSuite(
            job.loaded,
            points,
            trials or suite.trials,
            first,
            identity,
            Questionnaire(suite.rubrics),
            [parse_any(name) for name in suite.measures],
            b"".join(map(_case_digest, job.loaded.cases)),
        )

    def units(self) -> Iterator[Unit]:
        """All units in plan order."""
        for suite in self.suites:
            index = suite.first_index
            for number in range(len(suite.loaded.cases)):
                for unit in _units_of_case(suite, number, index):
                    yield unit
                    index += 1

    def units_of(self, group: Group) -> int:
        """Number of units of one group."""
        return sum(
            len(point.cases) * suite.trials
            for suite in self.suites
            for point in suite.points
            if (suite.loaded.name, point.id) in group.points
        )

    def case_units(self, group: Group) -> Iterator[list[Unit]]:
        """The units of one group, one list a case: all its points and trials together."""
        for suite in self.suites:
            wanted = {
                point.id for point in suite.points if (suite.loaded.name, point.id) in group.points
            }
            index = suite.first_index
            for number in range(len(suite.loaded.cases)):
                units = list(_units_of_case(suite, number, index))
                index += len(units)
                if chosen := [unit for unit in units if unit.point.id in wanted]:
                    yield chosen

    @cached_property
    def groups(self) -> list[Group]:
        """Groups in the order in which their pools first occur; a set inside another joins it.

        1. Points with the same pools form one group.
        2. A group whose pools are all part of a larger group's joins the first such group, so that
           cheap points share the expensive points' results.
        """
        by_pools: dict[frozenset[str], set[tuple[str, str]]] = {}
        for suite in self.suites:
            for point in suite.points:
                by_pools.setdefault(point.pool_keys, set()).add((suite.loaded.name, point.id))
        maximal = [keys for keys in by_pools if not any(keys < other for other in by_pools)]
        return [
            Group(
                keys,
                frozenset(
                    name
                    for inner, names in by_pools.items()
                    if next(home for home in maximal if inner <= home) == keys
                    for name in names
                ),
            )
            for keys in maximal
        ]

    @cached_property
    def digest(self) -> str:
        """Digest of everything that decides units, their order and their ids."""
        return canonical.digest(self.structure())

    def structure(self) -> dict[str, Any]:
        """The plan as plain data, small: digests of suites, cases and points."""
        return {
            "v": UNIT_VERSION,
            "suites": [
                {
                    "name": suite.loaded.name,
                    "identity": suite.identity,
                    "trials": suite.trials,
                    "cases": canonical.digest_bytes(suite.case_digests),
                    "points": [
                        {"id": point.id, "label": point.label, "cases": sorted(point.cases)}
                        for point in suite.points
                    ],
                }
                for suite in self.suites
            ],
        }


def _refuse_equal(points: Sequence[Point], job: SuiteJob) -> None:
    first: dict[str, Point] = {}
    for point in points:
        twin = first.setdefault(point.id, point)
        if twin is not point:
            raise ConfigError(
                str(job.loaded.path),
                [f"{twin.label!r} and {point.label!r} are one point: their models are one file"],
            )


def _case_digest(case: Case) -> bytes:
    return bytes.fromhex(canonical.digest({"id": case.id, "case": case.identity()}))


def _units_of_case(suite: PlannedSuite, number: int, first: int) -> Iterator[Unit]:
    """The units of the suite's case with this position; ``first``: number of the first unit."""
    case = suite.loaded.cases[number]
    identity = suite.case_digests[32 * number : 32 * (number + 1)].hex()
    index = first
    for point in suite.points:
        if case.id not in point.cases:
            continue
        for trial in range(suite.trials):
            yield Unit(index, _unit_id(suite, identity, point, trial), suite, point, case, trial)
            index += 1


def _unit_id(suite: PlannedSuite, case: str, point: Point, trial: int) -> str:
    """Digest of {"case", "point", "suite", "trial", "v"} as canonical JSON.

    All but the numbers in it are digests, so that it needs no encoder.
    """
    identity = (
        f'{{"case":"{case}","point":"{point.id}","suite":"{suite.identity}",'
        f'"trial":{trial},"v":{UNIT_VERSION}}}'
    )
    return canonical.digest_bytes(identity.encode("ascii"))


def _point_id(spec: PointSpec, pools: Mapping[str, Bound]) -> str:
    """Digest of the resolved settings; references of models in use are replaced by identities.

    The preset's name is part of it: two presets that differ only in what a suite does not read are
    two points with equal results, which the stage cache computes once.
    """
    settings = spec.preset.model_dump(mode="json")
    for role in ("reranker", "generator", "judge"):
        if role in pools:
            del settings[role]["model"]
    return canonical.digest(
        {
            "preset": spec.preset_name,
            "settings": settings,
            "pools": {role: _read_of(bound, spec.preset) for role, bound in pools.items()},
        }
    )


def _read_of(bound: Bound, preset: Preset) -> list[str]:
    """Digests of the parts of a pool that a point reads: a lexical point needs no embedder."""
    used = {"lexical": preset.stages.lexical, "vector": preset.stages.vector}
    parts = [bound.spec.parts[part] for part, wanted in used.items() if wanted and bound.spec.parts]
    return parts or [bound.key]


def _merged(known: PoolSpec | None, pool: PoolSpec) -> PoolSpec:
    """One pool for all points that share it, opened for every method that any of them calls."""
    if known is None or "methods" not in known.location:
        return pool
    methods = sorted({*known.location["methods"], *pool.location["methods"]})
    return known._replace(location={**known.location, "methods": methods})


def lints(plan: Plan) -> list[str]:
    """What is allowed but unlikely to be meant, one sentence each."""
    found = []
    for suite in plan.suites:
        drawn = any(
            point.spec.preset.generator is not None and point.spec.preset.generator.temperature > 0
            for point in suite.points
        )
        if suite.trials > 1 and not drawn:
            found.append(
                f"suite {suite.loaded.name!r} has {suite.trials} trials and no point draws"
                " (generator.temperature is 0): its trials are identical"
            )
    return found
