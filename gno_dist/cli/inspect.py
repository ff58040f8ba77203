"""``plan``, ``report`` and ``verify``: looking at jobs without running anything."""

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from gno_dist import files, jobs
from gno_dist.backends.resolve import check_models, pools_of
from gno_dist.cli.console import app, errors_as_exit_codes, say, show, show_json, show_table
from gno_dist.cli.execute import show_summary
from gno_dist.cli.options import ActorsOption, JsonOption, TrialsOption, default_sweep
from gno_dist.cli.resources import show_resources
from gno_dist.errors import ConfigError
from gno_dist.estimate import SECONDS, work
from gno_dist.journal import Journal
from gno_dist.plan import Plan
from gno_dist.reduce import Reducer
from gno_dist.report import cases as case_view
from gno_dist.report import markdown
from gno_dist.report.summary import summarise
from gno_dist.report.verdict import verdict
from gno_dist.sweep import load_job
from gno_dist.trials import fingerprint, rescore

JobArgument = Annotated[Path, typer.Argument(help="A job folder.")]


@app.command()
def plan(
    file: Annotated[
        Path | None, typer.Argument(help="A sweep file; without it the default.")
    ] = None,
    trials: TrialsOption = None,
    resources: Annotated[
        bool, typer.Option("--resources", help="Show workers, threads and memory of each group.")
    ] = False,
    actors: ActorsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show points, units, unique stage work and estimated minutes; runs nothing."""
    with errors_as_exit_codes():
        job = load_job(file or default_sweep())
        check_models(job)
        planned = Plan(job, pools_of, trials)
        if resources:
            show_resources(planned, actors or (), as_json=as_json)
            return
        stages = work(planned)
        if as_json:
            show_json(_plan_json(planned, stages))
            return
        _show_plan(planned, stages)


def _plan_json(planned: Plan, stages: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": planned.name,
        "digest": planned.digest,
        "units": planned.n_units,
        "groups": [
            sorted(planned.pools[key].label for key in group.pools) for group in planned.groups
        ],
        "points": [
            {
                "suite": suite.loaded.name,
                "point": point.id,
                "label": point.label,
                "cases": len(point.cases),
                "trials": suite.trials,
            }
            for suite in planned.suites
            for point in suite.points
        ],
        "stages": [
            {
                "stage": stage.stage,
                "asked": stage.asked,
                "unique": stage.unique,
                "saved": stage.saved,
                "minutes": stage.minutes,
            }
            for stage in stages
        ],
    }


def _show_plan(planned: Plan, stages: Any) -> None:
    show(f"{planned.name}: {planned.n_units} units, plan {planned.digest[:12]}\n")
    show_table(
        ["suite", "point", "cases", "trials", "units"],
        [
            [
                suite.loaded.name,
                point.label,
                str(len(point.cases)),
                str(suite.trials),
                str(len(point.cases) * suite.trials),
            ]
            for suite in planned.suites
            for point in suite.points
        ],
    )
    show("\nGroups of backends that are open together")
    for group in planned.groups:
        labels = sorted(planned.pools[key].label for key in group.pools)
        show(f"  {', '.join(labels)}: {len(group.points)} points")
    show("\nStage work (calls; variants that a model will write count at their upper bound)")
    show_table(
        ["stage", "asked", "unique", "saved by sharing", "minutes of service"],
        [
            [
                stage.stage,
                str(stage.asked),
                str(stage.unique),
                f"{100 * stage.saved:.0f} %",
                f"{stage.minutes:.1f}",
            ]
            for stage in stages
        ],
    )
    total = sum(stage.minutes for stage in stages)
    per_call = ", ".join(f"{name} {value:g}" for name, value in SECONDS.items())
    show(f"\nAbout {total:.1f} minutes of service without cached results (seconds a call:")
    show(f"{per_call}; embedded models, one thread); backends work beside each other.")


@app.command()
def report(
    job: JobArgument,
    cases: Annotated[bool, typer.Option("--cases", help="Show every trial.")] = False,
    worst: Annotated[
        int | None, typer.Option("--worst", min=1, help="Only the N lowest-scoring trials.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write report.md and summary.json again from the journal and show them."""
    with errors_as_exit_codes():
        manifest, planned = jobs.stored_plan(job)
        journal = Journal(job / "journal.jsonl", planned.n_units, read_only=True)
        if cases or worst is not None:
            records = journal.in_plan_order()
            shown = case_view.worst_first(planned, records, worst) if worst else records
            for line in case_view.render(planned, shown):
                show(line)
            return
        reducer = Reducer()
        for record in journal.in_plan_order():
            reducer.add(record)
        run = _last_run(job)
        summary = summarise(
            planned, reducer, fingerprint=fingerprint(planned, journal.plain()), run=run
        )
        summary["verdict"] = verdict(planned, reducer)
        files.write_json(job / "summary.json", summary)
        files.write_text(job / "report.md", markdown.render(summary))
        show_summary(summary, job, as_json=as_json)


def _last_run(job: Path) -> dict[str, Any]:
    """What the last invocation observed; a journal alone does not hold it."""
    try:
        known = files.read_structured(job / "summary.json")
    except ConfigError:
        return {}
    run = known.get("run") if isinstance(known, dict) else None
    return run if isinstance(run, dict) else {}


@app.command()
def verify(job: JobArgument, as_json: JsonOption = False) -> None:
    """Compute every number of a job again from its journal and compare."""
    with errors_as_exit_codes():
        _, planned = jobs.stored_plan(job)
        journal = Journal(job / "journal.jsonl", planned.n_units, read_only=True)
        faults = _record_faults(planned, journal)
        reducer = Reducer()
        for record in journal.in_plan_order():
            reducer.add(record)
        digest = fingerprint(planned, journal.plain())
        again = summarise(planned, reducer, fingerprint=digest, run={})
        again["verdict"] = verdict(planned, reducer)
        faults += _summary_faults(job, again)
        if as_json:
            show_json({"version": 1, "units": journal.n_done, "faults": faults})
        else:
            for fault in faults:
                show(f"  {fault}")
            planned_units = f"{journal.n_done} of {planned.n_units} units"
            show(f"{planned_units}: {len(faults) or 'no'} difference{'s' * (len(faults) != 1)}")
            show(f"fingerprint {digest}")
        if faults:
            raise typer.Exit(1)
        if journal.n_done < planned.n_units:
            raise typer.Exit(3)


def _summary_faults(job: Path, again: dict[str, Any]) -> list[str]:
    path = job / "summary.json"
    if not path.exists():  # the driver was killed; there is no number yet that could be wrong
        say(f"{path}: not written yet; `gno-dist resume {job}` finishes the job")
        return []
    stored = files.read_structured(path)
    computed = orjson.loads(files.json_bytes(again))
    return [
        f"summary.json: {name} is not what the journal gives"
        for name in computed
        if name != "run" and (not isinstance(stored, dict) or computed[name] != stored.get(name))
    ]


def _record_faults(planned: Plan, journal: Journal) -> list[str]:
    """Records of another unit than the plan's, or whose outcomes do not follow from them."""
    faults = []
    records = {record.index: record for record in journal.in_plan_order()}
    for unit in planned.units():
        record = records.get(unit.number)
        if record is None:
            continue
        if record.unit_id != unit.id:
            faults.append(f"unit {unit.number}: id {record.unit_id[:12]}, planned {unit.id[:12]}")
        elif rescore(unit.suite, unit.point, unit.case, record) != record.outcomes:
            faults.append(f"unit {unit.number} ({unit.case.id}): outcomes differ from its outputs")
    return faults
