"""A job folder: its manifest, and the plan rebuilt from it alone.

``results/<job_id>/manifest.json`` is written before anything runs and holds every user file as it
was read, so a job can be resumed, verified and reported when the files have moved on.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gno_dist import canonical, files
from gno_dist.calls import PoolSpec
from gno_dist.errors import ConfigError, PlanMismatch
from gno_dist.manifest import MANIFEST_VERSION, job_from_manifest
from gno_dist.plan import Plan, PoolsOf
from gno_dist.presets import Preset
from gno_dist.suite import LoadedSuite


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
