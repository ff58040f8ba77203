"""A small real job: every embedded model, every kind of suite, both pools, one fingerprint."""

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gno_dist.backends.resolve import pools_of
from gno_dist.engine import Execution, execute
from gno_dist.placement import Machine
from gno_dist.plan import Plan
from gno_dist.pool import InlinePool
from gno_dist.sweep import load_job
from workers.cluster import RayCluster

from .conftest import IN_CI, ROOT

pytestmark = [pytest.mark.models, pytest.mark.ray]

if not IN_CI and find_spec("llama_cpp") is None:
    pytest.skip("llama-cpp-python is not installed", allow_module_level=True)

SWEEP = f"""
version: 1
name: small
presets_file: {ROOT}/fixtures/presets.yaml
presets: [embedded-q4, embedded-q2]
suites:
  - {{suite: query.yaml, axes: {{depth: [fast, thorough]}}}}
  - {{suite: ask.yaml}}
  - {{suite: support.yaml}}
"""


@pytest.fixture
def small_sweep(tmp_path: Path) -> Path:
    """The shipped suites on one or two cases each."""
    shipped = ROOT / "fixtures"
    chosen = {"query": "queries", "ask": "cases", "support": "cases"}
    limits = {"query": ["q02", "q31"], "ask": ["ask01"], "support": ["refund-rude"]}
    for name, key in chosen.items():
        text = (shipped / "suites" / f"{name}.yaml").read_text(encoding="utf-8")
        text = text.split("subsets:")[0].replace("../", f"{shipped}/")
        text += f"\nsubsets: {{few: {limits[name]}}}\n"
        assert key in text
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    sweep = SWEEP.replace(".yaml,", ".yaml, subset: few,").replace(".yaml}", ".yaml, subset: few}")
    (tmp_path / "sweep.yaml").write_text(sweep, encoding="utf-8")
    return tmp_path / "sweep.yaml"


def run(path: Path, folder: Path, factory: Any, **workers: int) -> dict[str, Any]:
    folder.mkdir()
    plan = Plan(load_job(path), pools_of)
    execution = Execution(factory, Machine(2, 16 * 2**30), None, workers=workers)
    return asyncio.run(execute(plan, folder, execution))


def test_real_models_give_one_fingerprint_inline_and_on_ray(
    small_sweep: Path, tmp_path: Path, ray_cluster: RayCluster
) -> None:
    from workers.pool import RayPools

    inline = run(small_sweep, tmp_path / "inline", InlinePool)
    ray = run(small_sweep, tmp_path / "ray", RayPools(ray_cluster), search=2)
    assert inline["fingerprint"] == ray["fingerprint"]
    assert inline["coverage"] == 1.0
    assert inline["usage"]["input_tokens"] > 0
    assert inline["usage"]["output_tokens"] > 0
    ask = {c["preset"]: c["measures"] for c in inline["cells"] if c["suite"] == "ask"}
    for measures in ask.values():
        for quality in ("relevance", "groundedness", "completeness"):
            assert 0.0 <= measures[quality]["mean"] <= 1.0
