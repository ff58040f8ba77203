"""The committed JSON Schemas are those of the models, and the shipped files obey them."""

from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

from gno_dist import schemas
from gno_dist.files import read_structured
from gno_dist.records import Failed, Scored, ScoredDoc, StageReceipt, UnitRecord, Unscored
from gno_dist.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = [
    *((path, "suite") for path in sorted((ROOT / "fixtures/suites").glob("*.yaml"))),
    *((path, "sweep") for path in sorted((ROOT / "fixtures/sweeps").glob("*.yaml"))),
    (ROOT / "fixtures/presets.yaml", "presets"),
    (ROOT / "fixtures/queries/queries.json", "queries"),
    (ROOT / "fixtures/ask/ask.json", "ask-cases"),
    (ROOT / "fixtures/rubric/support.jsonl", "rubric-cases"),
]


def schema(name: str) -> Any:
    return orjson.loads((ROOT / "schemas" / f"{name}.schema.json").read_bytes())


def test_committed_schemas_are_generated_ones() -> None:
    assert schemas.differences(ROOT / "schemas") == []


@pytest.mark.parametrize(("path", "name"), EXAMPLES, ids=lambda value: Path(value).name)
def test_shipped_files_obey_their_schema(path: Path, name: str) -> None:
    jsonschema.validate(_snake(read_structured(path)), schema(name))


def test_a_schema_refuses_an_unknown_key() -> None:
    document = read_structured(ROOT / "fixtures/suites/vsearch.yaml")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "colour": "blue"}, schema("suite"))


@pytest.mark.parametrize("name", sorted(schemas.MODELS))
def test_a_schema_is_a_schema_and_every_object_of_ours_is_closed(name: str) -> None:
    document = schema(name)
    jsonschema.Draft202012Validator.check_schema(document)
    for part in [document, *document.get("$defs", {}).values()]:
        if "properties" in part:
            assert part["additionalProperties"] is False


def test_stored_records_and_settings_obey_their_schema() -> None:
    record = UnitRecord(
        unit_id="u",
        index=0,
        suite="ask",
        point="p",
        case_id="a1",
        trial=0,
        ranking=(ScoredDoc("a.md", 0.5),),
        judgement={"tone": {"score": 1.5}},
        receipts=(StageReceipt(stage="search", state="ran", count=1),),
        outcomes={
            "a": Scored(value=0.0),
            "b": Unscored(reason="x"),
            "c": Failed(error="E", message="x"),
        },
    )
    line = orjson.loads(record.model_dump_json())
    jsonschema.validate(line, schema("journal-line"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**line, "outcomes": {"a": {"kind": "zero"}}}, schema("journal-line"))
    jsonschema.validate(Settings().model_dump(mode="json"), schema("settings"))
    jsonschema.validate({"version": 1}, schema("settings"))


def test_missing_and_outdated_schemas_are_named_and_written(tmp_path: Path) -> None:
    schemas.write(tmp_path)
    assert schemas.differences(tmp_path) == []
    (tmp_path / "suite.schema.json").write_text("{}")
    (tmp_path / "old.schema.json").write_text("{}")
    assert schemas.differences(tmp_path) == ["old.schema.json", "suite.schema.json"]
    assert schemas.write(tmp_path) == ["old.schema.json", "suite.schema.json"]
    assert schemas.differences(tmp_path) == []


def _snake(value: Any) -> Any:
    """camelCase keys as snake_case: files may use either, schemas name one."""
    if isinstance(value, list):
        return [_snake(item) for item in value]
    if isinstance(value, dict):
        return {
            {"expectedTopics": "expected_topics"}.get(key, key): _snake(item)
            for key, item in value.items()
        }
    return value
