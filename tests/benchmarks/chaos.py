"""Whether anything is lost when everything is killed: seeded runs with kills, hangs and poison.

Each run is the command itself on two local Ray actors. At drawn moments a worker or the driver is
killed with SIGKILL, or a worker stopped with SIGSTOP; some cases crash, end or hang their worker.
After a dead driver the job is resumed. In the end the journal must hold each unit once, and every
run the same fingerprint, which is that of a run without kills.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import common
import orjson
import psutil

BAR = "0 lost, 0 doubled, 1 fingerprint"
N_CASES = 120
MODEL = "noop;slow=parcel;segfault=parcel 17?;hang=parcel 42?;die=parcel 77?"
FLAGS = ["--pool", "ray", "--no-cache", "--quiet", "--attempt-timeout", "4"]


def command(*args: str | Path) -> list[str]:
    """The command line in this Python."""
    return [sys.executable, "-m", "gno_dist.cli.main", *map(str, args)]


def start(folder: Path, *args: str | Path) -> subprocess.Popen[str]:
    """Start the command in a session of its own."""
    return subprocess.Popen(
        command(*args),
        cwd=folder,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def workers(driver: int) -> list[psutil.Process]:
    """The driver's live actors."""
    found = []
    with suppress(psutil.Error):
        for process in psutil.Process(driver).children(recursive=True):
            with suppress(psutil.Error):
                if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::HostActor"):
                    found.append(process)
    return found


def disturb(process: subprocess.Popen[str], rng: random.Random, done: Counter[str]) -> bool:
    """Wait a drawn time, then do harm; whether the driver was killed."""
    try:
        process.wait(rng.uniform(0.5, 5.0))
    except subprocess.TimeoutExpired:
        pass
    else:
        return False
    victims = workers(process.pid)
    kind = rng.choices(["worker", "stop", "driver"], [5, 1, 2 if victims else 0])[0]
    if kind == "driver":
        process.kill()
        process.wait()
        done[kind] += 1
        return True
    if victims:
        with suppress(psutil.Error):
            rng.choice(victims).send_signal(signal.SIGKILL if kind == "worker" else signal.SIGSTOP)
            done[kind] += 1
    return False


def one_run(folder: Path, sweep: Path, seed: int, done: Counter[str]) -> tuple[str, list[int]]:
    """Fingerprint line and indices of the journal's records, after a run with disturbances."""
    rng = random.Random(seed)
    args: list[str | Path] = ["sweep", sweep, "--results", folder / "results", "--actors", "llm=2"]
    harms = rng.randrange(3, 9)
    while True:
        process = start(folder, *args, *FLAGS)
        while process.poll() is None:
            if harms and not (folder / "results").exists():
                time.sleep(0.2)
            elif harms:
                harms -= 1
                if disturb(process, rng, done):
                    break
            else:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(300)
        stdout, stderr = process.communicate()
        jobs = list((folder / "results").glob("*"))
        if process.returncode in {0, 1, 3} and "fingerprint" in stdout and "PARTIAL" not in stdout:
            break
        if process.returncode != -signal.SIGKILL:
            raise RuntimeError(f"seed {seed}: exit {process.returncode}\n{stdout}\n{stderr}")
        if not jobs or not (jobs[0] / "manifest.json").exists():
            for job in jobs:
                job.rmdir()
            continue
        args = ["resume", jobs[0], "--actors", "llm=2"]
        wait_for_ray_to_go(process.pid)
    (job,) = jobs
    lines = (job / "journal.jsonl").read_bytes().splitlines()
    return stdout.splitlines()[-1], [orjson.loads(line)["index"] for line in lines]


def wait_for_ray_to_go(driver: int) -> None:
    """A dead driver's cluster ends by itself; its session is the driver's."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        left = []
        for process in psutil.process_iter():
            with suppress(OSError, psutil.Error):
                if os.getsid(process.pid) == driver and "HostActor" in " ".join(process.cmdline()):
                    left.append(process)
        if not left:
            return
        time.sleep(0.2)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=20_261_204)
    options = parser.parse_args()
    print(common.machine())
    done: Counter[str] = Counter()
    prints, lost, doubled = set(), 0, 0
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        os.environ["GNO_DIST_CACHE"] = str(Path(name) / "cache")
        sweep = common.write_job(Path(name) / "job", N_CASES, [MODEL])
        calm = Path(name) / "calm"
        calm.mkdir()
        process = start(calm, "sweep", sweep, "--results", calm / "results", *FLAGS)
        stdout, stderr = process.communicate()
        if "fingerprint" not in stdout:
            raise RuntimeError(stdout + stderr)
        prints.add(stdout.splitlines()[-1])
        for i in range(options.runs):
            folder = Path(name) / f"run{i}"
            folder.mkdir()
            line, indices = one_run(folder, sweep, options.seed + i, done)
            prints.add(line)
            lost += N_CASES - len(set(indices))
            doubled += len(indices) - len(set(indices))
            print(f"run {i}: {dict(done)} so far, {line[:24]}", flush=True)
    figures = {
        "runs": options.runs,
        "killed_workers": done["worker"],
        "stopped_workers": done["stop"],
        "killed_drivers": done["driver"],
        "lost": lost,
        "doubled": doubled,
        "fingerprints": len(prints),
        "minutes": (time.perf_counter() - started) / 60,
    }
    holds = lost == 0 and doubled == 0 and len(prints) == 1
    common.finish("chaos", figures, BAR, holds=holds)


if __name__ == "__main__":
    main()
