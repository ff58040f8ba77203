"""How far a job is, as its driver sees it: a small document, and the same for Prometheus; pure.

Everything in it is an observation. Knows shapes and names; not who gathers the numbers or where
they are written.
"""

from collections.abc import Mapping
from typing import Any

STATUS_VERSION = 1
STATUS_FILE = "status.json"
METRICS_FILE = "metrics.prom"


def worker_rows(
    shares: Mapping[str, Mapping[str, float]],
) -> list[tuple[str, dict[str, float]]]:
    """(pool label, state -> share of its workers' time, summing to 1) of pools that had workers."""
    rows = []
    for label, seconds in shares.items():
        if total := sum(seconds.values()):
            rows.append((label, {state: s / total for state, s in seconds.items()}))
    return rows


def exposition(status: Mapping[str, Any]) -> str:
    """The status in Prometheus' text format, for a textfile collector.

    Labels hold names of pools, stages and reasons only: never prompts, cases or ids of units.
    """
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    def families() -> Any:
        units = GaugeMetricFamily("gno_dist_units", "Units of the job.", labels=["state"])
        for state in ("planned", "done", "failed"):
            units.add_metric([state], status["units"][state])
        yield units
        calls = CounterMetricFamily("gno_dist_calls", "Backend calls.", labels=["how"])
        for how in ("made", "shared"):
            calls.add_metric([how], status["calls"][how])
        yield calls
        workers = CounterMetricFamily(
            "gno_dist_worker_seconds", "Time of workers.", labels=["pool", "state"]
        )
        for pool, seconds in status["worker_s"].items():
            for state, value in seconds.items():
                workers.add_metric([pool, state], value)
        yield workers
        stages = CounterMetricFamily(
            "gno_dist_stage_service_seconds", "Time inside backends.", labels=["stage"]
        )
        for stage, value in status["stage_s"].items():
            stages.add_metric([stage], value)
        yield stages
        lost = CounterMetricFamily("gno_dist_workers_lost", "Workers lost.", labels=["reason"])
        for reason, count in status["lost"].items():
            lost.add_metric([reason], count)
        yield lost
        tokens = CounterMetricFamily("gno_dist_tokens", "Tokens of new results.", labels=["side"])
        for side in ("input", "output"):
            tokens.add_metric([side], status["usage"][f"{side}_tokens"])
        yield tokens
        yield CounterMetricFamily(
            "gno_dist_cost_usd", "Cost of the results.", value=status["usage"]["cost_usd"]
        )
        yield GaugeMetricFamily(
            "gno_dist_peak_resident_bytes", "All processes.", value=status["peak_rss_bytes"]
        )
        yield GaugeMetricFamily(
            "gno_dist_updated_seconds", "Unix time.", value=status["updated_unix"]
        )

    class Collector:
        def collect(self) -> Any:
            return families()

    registry = CollectorRegistry()
    registry.register(Collector())
    return generate_latest(registry).decode("utf-8")
