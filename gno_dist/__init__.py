"""Measure retrieval and LLM answers over many configurations: plans, runs, statistics, reports.

Names are loaded when they are first used, so importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gno_dist.engine import Execution, execute
    from gno_dist.errors import GnoDistError
    from gno_dist.measures import Measure, parse_measure
    from gno_dist.plan import Plan
    from gno_dist.presets import Preset
    from gno_dist.records import Failed, Scored, UnitRecord, Unscored
    from gno_dist.rubric import Rubric
    from gno_dist.stats import mean_interval, paired_comparison
    from gno_dist.suite import Suite
    from gno_dist.sweep import Sweep, load_job

_HOMES = {
    "Execution": "engine",
    "Failed": "records",
    "GnoDistError": "errors",
    "Measure": "measures",
    "Plan": "plan",
    "Preset": "presets",
    "Rubric": "rubric",
    "Scored": "records",
    "Suite": "suite",
    "Sweep": "sweep",
    "UnitRecord": "records",
    "Unscored": "records",
    "execute": "engine",
    "load_job": "sweep",
    "mean_interval": "stats",
    "paired_comparison": "stats",
    "parse_measure": "measures",
}

__all__ = [
    "Execution",
    "Failed",
    "GnoDistError",
    "Measure",
    "Plan",
    "Preset",
    "Rubric",
    "Scored",
    "Suite",
    "Sweep",
    "UnitRecord",
    "Unscored",
    "execute",
    "load_job",
    "mean_interval",
    "paired_comparison",
    "parse_measure",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
