"""Whether the driver's memory stays constant: resident size over a million no-op units.

100 000 cases at ten presets that share nothing. The suite itself is loaded before the count starts;
what counts is the greatest resident size from there on, the report included.
"""

import argparse
import tempfile
from pathlib import Path

import common

BAR = "growth < 100 MB at 1 000 000 units"


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    options = parser.parse_args()
    print(common.machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        common.run(  # everything is imported and warm before the count starts
            common.load(common.write_job(folder / "warm", 200, ["noop"] * 10)), folder / "first"
        )
        job = common.load(common.write_job(folder / "job", options.cases, ["noop"] * 10))
        before = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5", "ascii")  # the peak starts here
        found = common.run(job, folder / "run")
        growth = (_status("VmHWM") - before) / 1e6
        journal_mb = (folder / "run" / "journal.jsonl").stat().st_size / 1e6
    figures = {
        "units": found.units,
        "before_mb": before / 1e6,
        "growth_mb": growth,
        "journal_mb": journal_mb,
        "units_per_s": found.rate,
    }
    whole = found.summary["complete"] and found.units >= 1_000_000
    common.finish("memory", figures, BAR, holds=bool(whole and growth < 100))


if __name__ == "__main__":
    main()
