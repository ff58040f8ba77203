"""The Markdown report of a summary; pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from gno_dist.report import text


def render(summary: Mapping[str, Any]) -> str:
    """The report: what may be concluded first, then tables, gates, what is missing, the run."""
    parts = [f"# {summary['name']}", ""]
    if not summary["complete"]:
        units = summary["units"]
        parts += [f"**Partial: {units['done']} of {units['planned']} units.**", ""]
    parts += ["## What may be concluded", ""]
    for entry in summary["verdict"]:
        parts += [f"- **{entry['suite']}**: {' '.join(entry['sentences'])}"]
    parts += [""]
    for suite, cells in text.by_suite(summary["cells"]).items():
        header, rows = text.suite_rows(cells)
        parts += [f"## {suite}", "", *_table(header, rows), ""]
    parts += [
        "Values are means over cases with 95 % intervals; p50 and p95 are service times composed"
        " of the stages' own times, without queueing and loading.",
        "",
    ]
    for title, lines in (
        ("Gates that do not hold", text.gate_lines(summary)),
        ("Not measured", text.missing_lines(summary)),
        ("This run", text.run_lines(summary)),
    ):
        if lines:
            parts += [f"## {title}", "", *(f"- {line}" for line in lines), ""]
    parts += [f"Fingerprint `{summary['fingerprint']}`", ""]
    return "\n".join(parts)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(map(_cell, header)) + " |", "|" + " --- |" * len(header)]
    return lines + ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]


def _cell(value: str) -> str:
    return value.replace("|", "\\|")
