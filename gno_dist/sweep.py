"""Sweeps: which suites meet which presets, and which settings vary.

``load_job`` reads a sweep with everything it names and gives one checked value, or one error with
all problems. Knows the files; the expansion into points and units is plan's.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, JsonValue

from gno_dist.corpus import Corpus
from gno_dist.loading import Collector, UserModel
from gno_dist.presets import Preset, PresetFile, with_settings
from gno_dist.suite import LoadedSuite, Slug, load_suite

Axes = dict[str, list[JsonValue]]
Assignment = dict[str, JsonValue]


class SuiteEntry(UserModel):
    """One suite of a sweep, with what varies or is limited for it alone."""

    suite: str
    """Path of the suite file, relative to the sweep file."""
    axes: Axes = {}
    subset: Slug | None = None
    """Run only the cases of this named subset."""
    model_subset: Slug | None = None
    """Points that need a language model run only the cases of this named subset."""


class Sweep(UserModel):
    """A sweep file."""

    version: Literal[1]
    name: Slug
    description: str = ""
    presets_file: str
    presets: list[str] = Field(min_length=1)
    suites: list[SuiteEntry] = Field(min_length=1)
    axes: Axes = {}
    """Dotted setting -> values, for every suite."""
    include: list[Assignment] = []
    """Keep only points that agree with one of these (all points when empty)."""
    exclude: list[Assignment] = []
    """Drop points that agree with one of these."""


class PointSpec(NamedTuple):
    """One assignment of all axes over one preset: the resolved settings, and what varied."""

    preset_name: str
    varied: Assignment
    preset: Preset

    @property
    def label(self) -> str:
        """The preset's name, then what varies, in axis order."""
        parts = [f"{path.rsplit('.', 1)[-1]}={value}" for path, value in self.varied.items()]
        return " ".join([self.preset_name, *parts])


class SuiteJob(NamedTuple):
    """A suite with its points and the cases that each point runs."""

    loaded: LoadedSuite
    points: Sequence[PointSpec]
    cases_of: Sequence[frozenset[str]]
    """Parallel to ``points``: ids of the cases that run there."""


class LoadedJob(NamedTuple):
    """Everything a job reads from user files, checked."""

    path: Path
    name: str
    suites: Sequence[SuiteJob]


def load_job(path: Path) -> LoadedJob:
    """Read a sweep file and all it names.

    Raises:
        ConfigError: with every problem of every file.
    """
    problems = Collector()
    document = problems.read(path)
    sweep = problems.validate(Sweep, document, path) if document is not None else None
    if sweep is None:
        problems.fail(str(path))
    presets = _load_presets(sweep, path, problems)
    jobs = _load_suites(sweep, path, presets, problems)
    _check_patterns(sweep, path, problems)
    problems.raise_if_any(str(path))
    return LoadedJob(path, sweep.name, jobs)


def single_suite_job(suite_path: Path, presets_path: Path, preset: str) -> LoadedJob:
    """A job of one suite at one preset, as ``gno-dist run`` makes it.

    Raises:
        ConfigError: with every problem of every file.
    """
    problems = Collector()
    sweep = Sweep(
        version=1,
        name=suite_path.stem,
        presets_file=str(presets_path.resolve()),
        presets=[preset],
        suites=[SuiteEntry(suite=str(suite_path.resolve()))],
    )
    presets = _load_presets(sweep, Path("--preset"), problems)
    jobs = _load_suites(sweep, suite_path, presets, problems)
    problems.raise_if_any(str(suite_path))
    return LoadedJob(suite_path, sweep.name, jobs)


def _load_presets(sweep: Sweep, path: Path, problems: Collector) -> dict[str, Preset]:
    origin = path.parent / sweep.presets_file
    document = problems.read(origin)
    file = problems.validate(PresetFile, document, origin) if document is not None else None
    if file is None:
        return {}
    for index, name in enumerate(sweep.presets):
        if name not in file.presets:
            problems.add(
                path, f"presets[{index}]", f"{name!r} is none of {sorted(file.presets)} in {origin}"
            )
        if name in sweep.presets[:index]:
            problems.add(path, f"presets[{index}]", f"{name!r} stands twice")
    return {name: file.presets[name] for name in sweep.presets if name in file.presets}


def _load_suites(
    sweep: Sweep, path: Path, presets: dict[str, Preset], problems: Collector
) -> list[SuiteJob]:
    corpora: dict[tuple[str, str | None], Corpus | None] = {}
    jobs: list[SuiteJob] = []
    names: dict[str, int] = {}
    for index, entry in enumerate(sweep.suites):
        place = f"suites[{index}]"
        loaded = load_suite(path.parent / entry.suite, problems, corpora)
        if loaded is None:
            continue
        first = names.setdefault(loaded.name, index)
        if first != index:
            problems.add(path, place, f"suite {loaded.name!r} stands at suites[{first}] already")
        before = len(problems.problems)
        points = _expand(sweep, entry, loaded, presets, path, place, problems)
        cases = [_cases_of(entry, loaded, point, path, place, problems) for point in points]
        if not points and presets and len(problems.problems) == before:
            problems.add(path, place, "include and exclude leave no point of this suite")
        jobs.append(SuiteJob(loaded, points, cases))
    return jobs


def _expand(
    sweep: Sweep,
    entry: SuiteEntry,
    loaded: LoadedSuite,
    presets: dict[str, Preset],
    path: Path,
    place: str,
    problems: Collector,
) -> list[PointSpec]:
    axes = {**sweep.axes, **entry.axes}
    for axis, values in axes.items():
        if not values:
            problems.add(path, f"{place}.axes.{axis}", "has no value")
        if axis in loaded.suite.settings:
            problems.add(path, f"{place}.axes.{axis}", f"suite {loaded.name!r} fixes this setting")
    points = []
    seen: set[tuple[str, str]] = set()
    for name, preset in presets.items():
        for choice in product(*axes.values()):
            varied: Assignment = dict(zip(axes, choice, strict=True))
            if not _kept(sweep, {"preset": name, **varied}):
                continue
            settings = {**loaded.suite.settings, **varied}
            resolved = _resolve(name, preset, settings, path, place, problems)
            if resolved is None:
                continue
            point = PointSpec(name, varied, resolved)
            settled = (name, resolved.model_dump_json())
            if settled in seen:
                problems.add(path, f"{place}.axes", f"{point.label!r} stands twice")
            seen.add(settled)
            _check_point(loaded, name, resolved, path, place, problems)
            points.append(point)
    return points


def _check_patterns(sweep: Sweep, path: Path, problems: Collector) -> None:
    """An ``exclude`` that agrees with nothing would be ignored, so its keys and values must exist.

    Values may belong to the axes of any suite of the sweep.
    """
    known: dict[str, list[JsonValue]] = {"preset": [*sweep.presets]}
    for axes in (sweep.axes, *(entry.axes for entry in sweep.suites)):
        for axis, values in axes.items():
            known.setdefault(axis, []).extend(values)
    for field, patterns in (("include", sweep.include), ("exclude", sweep.exclude)):
        for index, pattern in enumerate(patterns):
            for key, value in pattern.items():
                place = f"{field}[{index}].{key}"
                if key not in known:
                    problems.add(path, place, f"is none of {sorted(known)}")
                elif value not in known[key]:
                    problems.add(path, place, f"{value!r} is none of {known[key]}")


def _kept(sweep: Sweep, assignment: Assignment) -> bool:
    def agrees(pattern: Assignment) -> bool:
        return all(assignment.get(key) == value for key, value in pattern.items())

    if sweep.include and not any(agrees(pattern) for pattern in sweep.include):
        return False
    return not any(agrees(pattern) for pattern in sweep.exclude)


def _resolve(
    name: str,
    preset: Preset,
    settings: dict[str, Any],
    path: Path,
    place: str,
    problems: Collector,
) -> Preset | None:
    try:
        plain = with_settings(preset.model_dump(mode="json"), settings)
    except KeyError as exc:
        problems.add(path, place, f"no setting {exc.args[0]!r} in preset {name!r}")
        return None
    return problems.validate(Preset, plain, path, place)


def _check_point(
    loaded: LoadedSuite, name: str, preset: Preset, path: Path, place: str, problems: Collector
) -> None:
    kind = loaded.suite.kind
    needed = {
        "reranker": kind != "rubric" and preset.stages.rerank,
        "generator": kind == "answer" or (kind == "retrieval" and preset.stages.expand),
        "judge": kind in {"answer", "rubric"},
    }
    for role, wanted in needed.items():
        if wanted and getattr(preset, role) is None:
            why = f"depth {preset.depth!r}" if kind == "retrieval" else f"a suite of kind {kind!r}"
            problems.add(
                path, place, f"{loaded.name}: {why} needs a {role}, and preset {name!r} has none"
            )


def _cases_of(
    entry: SuiteEntry,
    loaded: LoadedSuite,
    point: PointSpec,
    path: Path,
    place: str,
    problems: Collector,
) -> frozenset[str]:
    name = entry.subset
    if entry.model_subset is not None and needs_language_model(loaded, point.preset):
        name = entry.model_subset
    if name is None:
        return frozenset(loaded.case_ids())
    if name not in loaded.suite.subsets:
        problems.add(path, place, f"suite {loaded.name!r} has no subset {name!r}")
        return frozenset()
    return frozenset(loaded.suite.subsets[name])


def needs_language_model(loaded: LoadedSuite, preset: Preset) -> bool:
    """Whether a point of this suite calls a reranker, generator or judge."""
    return loaded.suite.kind != "retrieval" or preset.stages.rerank or preset.stages.expand
