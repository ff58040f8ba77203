"""Numbers and rows as text, for the console, the Markdown report and the per-case view; pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from gno_dist.status import worker_rows


def number(value: float | None, digits: int = 3) -> str:
    """A number for people, ``–`` when there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def estimate(measure: Mapping[str, Any]) -> str:
    """``mean [low, high]``; a mark says when trials are missing."""
    interval = measure["interval"]
    text = number(measure["mean"])
    if interval is not None:
        text += f" [{number(interval['low'], 2)}, {number(interval['high'], 2)}]"
    if measure["scored"] < measure["planned"]:
        text += f" ({measure['scored']}/{measure['planned']})"
    return text


def milliseconds(value: float | None) -> str:
    """Milliseconds, one decimal below ten; seconds from ten thousand on."""
    if value is None:
        return "–"
    if value < 10:
        return f"{value:.1f} ms"
    return f"{value:.0f} ms" if value < 10_000 else f"{value / 1000:.1f} s"


def seconds(value: float) -> str:
    """``4.2 s``, ``3 min 05 s`` or ``2 h 03 min``."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return (
        f"{minutes} min {rest:02d} s"
        if minutes < 60
        else f"{minutes // 60} h {minutes % 60:02d} min"
    )


def tokens(usage: Mapping[str, Mapping[str, int]]) -> int:
    """All tokens of a cell, judge and system under test."""
    return sum(part["input_tokens"] + part["output_tokens"] for part in usage.values())


def dollars(value: float) -> str:
    """US dollars with enough digits to see small sums."""
    return f"${value:.2f}" if value == 0 or value >= 1 else f"${value:.5f}"


def cell_cost(usage: Mapping[str, Mapping[str, float]]) -> float:
    """Cost of a cell in US dollars."""
    return sum(part["cost_usd"] for part in usage.values())


def suite_rows(cells: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of one suite's table; ``cells`` are those of one suite."""
    names = list(cells[0]["measures"])
    header = ["point", "cases", *names, "unscored", "failed", "p50", "p95", "tokens", "cost"]
    rows = []
    for cell in cells:
        measures = cell["measures"]
        rows.append(
            [
                cell["label"],
                f"{cell['cases']}" + (f"x{cell['trials']}" if cell["trials"] > 1 else ""),
                *(estimate(measures[name]) for name in names),
                str(max(measure["unscored"] for measure in measures.values())),
                str(max(measure["failed"] for measure in measures.values())),
                milliseconds(cell["service_ms"]["p50"]),
                milliseconds(cell["service_ms"]["p95"]),
                f"{tokens(cell['usage']):,}",
                dollars(cell_cost(cell["usage"])),
            ]
        )
    return header, rows


def by_suite(cells: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Cells grouped by suite, in their order."""
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        grouped.setdefault(cell["suite"], []).append(cell)
    return grouped


def missing_lines(summary: Mapping[str, Any]) -> list[str]:
    """Why numbers are missing: trials not run, a line a cell; then a line a measure and reason."""
    lines = [
        f"{', '.join(group['pools'])}: skipped with {group['units']} units: {group['reason']}"
        for group in summary["run"].get("skipped", [])
    ]
    for cell in summary["cells"]:
        not_run = cell["cases"] * cell["trials"] - cell["units"]
        if not_run:
            lines.append(f"{cell['suite']} | {cell['label']}: {not_run} trials were not run")
        for name, measure in cell["measures"].items():
            for reason, count in measure["reasons"].items():
                lines.append(f"{cell['suite']} | {cell['label']} | {name}: {count} x {reason}")
    return lines


def gate_lines(summary: Mapping[str, Any]) -> list[str]:
    """One line a gate that does not hold, with enough digits to show the gap."""
    return [
        f"{gate['suite']} | {gate['label']}: {gate['measure']} reached {gate['reached']!r},"
        f" the threshold is {gate['threshold']!r}"
        for gate in summary["gates"]
        if not gate["holds"]
    ]


def run_lines(summary: Mapping[str, Any]) -> list[str]:
    """What the last invocation did, in sentences; none when it did not live to tell."""
    run, units = summary["run"], summary["units"]
    if not run:  # the driver was killed: nobody knows
        return []
    made, shared = run["calls_made"], run["calls_shared"]
    lines = [
        f"{units['done']} of {units['planned']} units"
        f" ({units['failed']} failed) in {seconds(run['wall_s'])};"
        f" {run['units_run']} run now.",
        f"{made} backend calls made, {shared} saved by sharing and the cache.",
    ]
    if run["stage_s"]:
        split = ", ".join(f"{stage} {seconds(s)}" for stage, s in run["stage_s"].items())
        lines.append(f"Service time by stage: {split}.")
    if run["pools"]:
        opened = ", ".join(f"{p['label']} {seconds(p['load_s'])}" for p in run["pools"])
        lines.append(f"Opening backends: {opened}.")
    for label, shares in worker_rows(run.get("worker_s", {})):
        split = ", ".join(f"{state} {100 * share:.0f} %" for state, share in shares.items())
        lines.append(f"Workers of {label}: {split}.")
    if run.get("lost"):
        lost = ", ".join(f"{n} {reason}" for reason, n in sorted(run["lost"].items()))
        lines.append(f"Workers lost and replaced: {lost}.")
    usage = summary["usage"]
    lines.append(
        f"{usage['input_tokens'] + usage['output_tokens']:,} tokens in the results, cached or new,"
        f" {dollars(usage['cost_usd'])}; peak resident memory"
        f" {run['peak_rss_bytes'] / 2**20:,.0f} MiB over all processes."
    )
    return lines
