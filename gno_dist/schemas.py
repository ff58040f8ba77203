"""JSON Schemas of everything a user writes and of what is stored, generated from the models."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from gno_dist import files
from gno_dist.cases import AskCase, Query, RubricCase
from gno_dist.presets import PresetFile
from gno_dist.records import UnitRecord
from gno_dist.settings import Settings
from gno_dist.suite import Suite
from gno_dist.sweep import Sweep

MODELS: dict[str, type[BaseModel] | Any] = {
    "suite": Suite,
    "presets": PresetFile,
    "sweep": Sweep,
    "queries": list[Query],
    "ask-cases": list[AskCase],
    "rubric-cases": list[RubricCase],
    "settings": Settings,
    "journal-line": UnitRecord,
}
"""Name of the schema file -> the model."""


def generate() -> dict[str, bytes]:
    """File name -> content of every schema."""
    found = {}
    for name, model in MODELS.items():
        schema = TypeAdapter(model).json_schema(by_alias=False)
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
        found[f"{name}.schema.json"] = files.json_bytes(schema, indent=True)
    return found


def differences(folder: Path) -> list[str]:
    """Names of schema files in ``folder`` that are missing, outdated or no longer generated."""
    wanted = generate()
    present = {path.name: path.read_bytes() for path in folder.glob("*.schema.json")}
    names = sorted(wanted.keys() | present.keys())
    return [name for name in names if wanted.get(name) != present.get(name)]


def write(folder: Path) -> list[str]:
    """Write every schema that differs; returns the names written or removed."""
    changed = differences(folder)
    wanted = generate()
    for name in changed:
        if name in wanted:
            files.write_atomic(folder / name, wanted[name])
        else:
            (folder / name).unlink()
    return changed
