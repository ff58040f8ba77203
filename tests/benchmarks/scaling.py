"""Whether two actors are twice one: CPU-bound calls on 1 and 2 Ray actors, and in bare processes.

The bare processes make the same calls in a loop and nothing else; their speed-up is what this
machine can give. Each figure is the best of the repeats, which take turns.
"""

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import common

from gno_dist.backends.fake import Fake
from workers.cluster import RayCluster

BAR = "speed-up with 2 actors >= .95 of the speed-up with 2 bare processes"
MODEL = "noop;burn=parcel"
ARGS = {"prefix": ["parcel"], "questions": [{"suffix": "?", "labels": [" A", " B"]}]}


def _work(n: int, start: Any) -> None:
    fake = Fake("noop", {"parcel": "burn"})
    start.wait()
    for _ in range(n):
        fake.handle("labels", ARGS)
    start.wait()


def bare(n_calls: int, processes: int) -> float:
    """Seconds for all calls, shared by so many processes that are warm when the clock starts."""
    start = multiprocessing.Barrier(processes + 1)
    share = n_calls // processes
    all_of_them = [
        multiprocessing.Process(target=_work, args=(share, start)) for _ in range(processes)
    ]
    for process in all_of_them:
        process.start()
    start.wait()
    began = time.perf_counter()
    start.wait()
    seconds = time.perf_counter() - began
    for process in all_of_them:
        process.join()
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(common.machine())
    times: dict[str, list[float]] = {}
    cluster = RayCluster("local")
    cluster.prepare()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = common.load(common.write_job(folder / "job", options.calls, [MODEL]))
        bare(20, 1)
        cluster.start()
        from workers.pool import RayPools

        for i in range(options.repeats):
            for n in (1, 2):
                times.setdefault(f"bare_{n}", []).append(bare(options.calls, n))
                found = common.run(job, folder / f"run{n}-{i}", RayPools(cluster), workers=n)
                times.setdefault(f"actors_{n}", []).append(found.warm_s)
                print(f"{n}: bare {times[f'bare_{n}'][-1]:.2f} s, actors {found.warm_s:.2f} s")
        cluster.stop()
    best = {f"{kind}_s": min(found) for kind, found in times.items()}
    ours = best["actors_1_s"] / best["actors_2_s"]
    theirs = best["bare_1_s"] / best["bare_2_s"]
    figures = {
        **best,
        "speedup_actors": ours,
        "speedup_bare": theirs,
        "ratio": ours / theirs,
        "one_actor_of_bare": best["bare_1_s"] / best["actors_1_s"],
    }
    common.finish("scaling", figures, BAR, holds=ours / theirs >= 0.95)


if __name__ == "__main__":
    main()
