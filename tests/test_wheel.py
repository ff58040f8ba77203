"""The wheel alone is enough: fixtures and schemas are inside, and the lexical sweep runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the built wheel's content and nothing else."""
    built = tmp_path_factory.mktemp("built")
    target = tmp_path_factory.mktemp("installed")
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(ROOT)]
    subprocess.run([sys.executable, *build], check=True, capture_output=True, timeout=300)
    (wheel,) = built.glob("*.whl")
    install = ["-m", "pip", "install", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run([sys.executable, *install], check=True, capture_output=True, timeout=300)
    return target


def test_the_packages_and_their_data_are_there(installed: Path) -> None:
    for name in (
        *("gno_dist/py.typed", "workers/pool.py", "gno_dist/judges/calibration.json"),
        *("gno_dist/_data/fixtures/sweeps/default.yaml", "gno_dist/_data/fixtures/presets.yaml"),
        "gno_dist/_data/schemas/suite.schema.json",
    ):
        assert (installed / name).is_file(), name


def test_the_quick_sweep_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    program = (
        "import gno_dist, gno_dist.cli.main as cli, gno_dist.data as data, sys;"
        "sweep = data.data_folder('fixtures') / 'sweeps' / 'quick.yaml';"
        "print(gno_dist.__file__, file=sys.stderr);"
        "sys.argv = ['gno-dist', 'sweep', str(sweep), '--pool', 'inline', '--quiet'];"
        "cli.main()"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stderr.startswith(str(installed))
    assert found.stdout.splitlines()[-1].startswith("fingerprint ")
    assert "96 of 96 units" in found.stdout
