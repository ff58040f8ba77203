"""The committed JSON Schemas are those of the models, and the shipped files obey them."""

from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

from gno_dist import schemas
from gno_dist.files import read_structured

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
