"""What a case costs beside its model: no-op cases end to end, with journal, report and fingerprint.

Ours inline and through one Ray actor; beside them a bare asyncio loop that writes JSON lines, and,
where they are installed (``pip install -e '.[bench]'``), pydantic-evals and Inspect.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import common
import peers

from workers.cluster import RayCluster

BAR = "inline >= 10000 cases/s and through Ray >= 8000 cases/s, on 2 cores"


def peer(measure: Callable[[int], float], n: int) -> float | None:
    """Cases a second of a peer; None where it is not installed."""
    try:
        return measure(n)
    except ImportError as exc:
        print(f"{measure.__name__}: not installed ({exc})")
        return None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=30_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(common.machine())
    cluster = RayCluster("local")
    cluster.prepare()
    rates: dict[str, list[float]] = {"bare_loop": [], "inline": [], "ray": []}
    prints = set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = common.load(common.write_job(folder / "job", options.cases, ["noop"]))
        cluster.start()
        from workers.pool import RayPools

        for i in range(options.repeats):  # in turn, so that a slow minute of the machine hits all
            rates["bare_loop"].append(peers.bare_loop(options.cases))
            for kind, factory in (("inline", common.InlinePool), ("ray", RayPools(cluster))):
                found = common.run(job, folder / f"{kind}{i}", factory)
                rates[kind].append(found.rate)
                prints.add(found.summary["fingerprint"])
                print(
                    f"{kind}: {found.units} cases in {found.wall_s:.2f} s,"
                    f" warm {found.warm_s:.2f} s, {found.rate:.0f} cases/s"
                )
        cluster.stop()
    best = {kind: max(found) for kind, found in rates.items()}
    others = {
        "pydantic_evals": peer(peers.pydantic_evals, 5000),
        "inspect_ai": peer(peers.inspect_ai, 500),
    }
    figures = {**{f"{kind}_per_s": rate for kind, rate in best.items()}}
    figures |= {f"{kind}_per_s": rate for kind, rate in others.items() if rate is not None}
    figures["inline_of_bare_loop"] = best["inline"] / best["bare_loop"]
    for kind, rate in others.items():
        if rate:
            figures[f"inline_over_{kind}"] = best["inline"] / rate
    figures["fingerprints"] = len(prints)
    holds = best["inline"] >= 10_000 and best["ray"] >= 8_000 and len(prints) == 1
    common.finish("overhead", figures, BAR, holds=holds)


if __name__ == "__main__":
    main()
