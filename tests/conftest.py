"""Shared by all tests: a clean environment, a tiny corpus, fake presets, one Ray, real models."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gno_dist.backends.paths import model_folder
from gno_dist.sweep import LoadedJob, load_job
from workers.cluster import RayCluster

ROOT = Path(__file__).resolve().parents[1]
REAL_MODELS = model_folder()
IN_CI = os.environ.get("CI") == "true"


@pytest.fixture(scope="session", autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of the test run's own; model files are the machine's, they are only read."""
    patch = pytest.MonkeyPatch()
    cache = tmp_path_factory.mktemp("cache")
    patch.setenv("GNO_DIST_CACHE", str(cache))
    patch.setenv("GNO_DIST_MODELS", str(REAL_MODELS))
    patch.setenv("OMP_NUM_THREADS", "1")
    for name in ("RAY_ADDRESS", "AI_GATEWAY_API_KEY", "OPENAI_API_KEY"):
        patch.delenv(name, raising=False)
    yield cache
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def _ray_environment(clean_environment: Path) -> Iterator[RayCluster]:
    """Ray reads its environment when it is imported, which any test may do first."""
    cluster = RayCluster("local", num_cpus=2)
    cluster.prepare()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def ray_cluster(_ray_environment: RayCluster) -> RayCluster:
    """The one Ray of the test run."""
    _ray_environment.start()
    return _ray_environment


DOCS = {
    "alpha/backup.md": "# Backup policy\n\nNightly backups are kept for thirty five days.\n",
    "alpha/logs.md": "# Log retention\n\nAccess logs are deleted after fourteen days.\n",
    "alpha/keys.md": "# Spare keys\n\nThe caretaker hands out spare keys on Mondays.\n",
    "beta/urlaub.md": "# Urlaub\n\nUrlaub wird zwei Wochen vorher beantragt.\n",
    "beta/reise.md": "# Reisekosten\n\nReisekosten werden binnen dreissig Tagen erstattet.\n",
}
QUERIES = """
- {id: q1, query: how long are backups kept, judgments: [{docid: alpha/backup.md, relevance: 3}]}
- {id: q2, query: access logs deleted, judgments: [{docid: alpha/logs.md, relevance: 3},
   {docid: alpha/backup.md, relevance: 1}]}
- {id: q3, query: Urlaub beantragen, collection: beta,
   judgments: [{docid: beta/urlaub.md, relevance: 2}]}
- {id: q4, query: spare keys, judgments: [{docid: alpha/keys.md, relevance: 3}]}
"""
SUITES = {
    "query": """
version: 1
name: query
kind: retrieval
corpus: {path: corpus}
queries: queries.yaml
measures: ["nDCG@10", "Recall@5", "latency(budget_ms=1000)"]
subsets: {core: [q1, q3]}
""",
    "ask": """
version: 1
name: ask
kind: answer
corpus: {path: corpus}
cases:
  - {id: a1, question: how long are backups kept, expectedTopics: [thirty five days],
     relevant: [alpha/backup.md]}
  - {id: a2, question: when are logs deleted, relevant: [alpha/logs.md]}
measures: [has_citations, "Recall@3"]
""",
    "support": """
version: 1
name: support
kind: rubric
cases:
  - {id: c1, input: "Where is my key?", output: "At the caretaker."}
  - {id: c2, input: "Where is my key?", output: "Go away.", expected: "At the caretaker."}
rubrics:
  answers: {type: boolean, instructions: "Does the output answer the input?"}
  tone: {type: score, instructions: "How friendly?", criteria: [rude, neutral, warm]}
  fault: {type: choice, instructions: "What is wrong?", criteria: {nothing: null, rude: null}}
""",
}
PRESETS = """
version: 1
presets:
  one:
    embedder: {backend: fake}
    depth: thorough
    reranker: &one {backend: fake, model: "one"}
    generator: {backend: fake, model: "one"}
    judge: *one
  two:
    embedder: {backend: fake}
    depth: thorough
    reranker: {backend: fake, model: "one"}
    generator: {backend: fake, model: "two"}
    judge: {backend: fake, model: "one"}
"""
SWEEP = """
version: 1
name: tiny
presets_file: presets.yaml
presets: [one, two]
suites:
  - {suite: query.yaml, axes: {depth: [fast, vector, hybrid, balanced, thorough]}}
  - {suite: ask.yaml}
  - {suite: support.yaml}
"""


def write_tiny(folder: Path, **replaced: str) -> Path:
    """Write the tiny job's files; returns the sweep's path. ``replaced`` replaces a file's text."""
    for name, text in DOCS.items():
        path = folder / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    texts = {"queries": QUERIES, "presets": PRESETS, "sweep": SWEEP, **SUITES, **replaced}
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / "sweep.yaml"


@pytest.fixture
def tiny_sweep(tmp_path: Path) -> Path:
    """A sweep of three suites over a corpus of five documents, with fake models."""
    return write_tiny(tmp_path / "tiny")


@pytest.fixture
def tiny_job(tiny_sweep: Path) -> LoadedJob:
    """The tiny sweep, loaded."""
    return load_job(tiny_sweep)
