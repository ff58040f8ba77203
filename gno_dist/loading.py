"""Strict loading of user files: all problems of all files are collected before one error is raised.

A ``Collector`` knows how to turn a broken document into lines that name file, place and value; it
does not know what the documents mean.
"""

from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel, to_snake

from gno_dist import files
from gno_dist.errors import ConfigError
from gno_dist.redact import is_secret


class UserModel(BaseModel):
    """Base of everything a user writes: strict, frozen, unknown keys refused.

    snake_case and camelCase are both read; snake_case is written.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, alias_generator=to_camel
    )


Model = TypeVar("Model", bound=BaseModel)


class Collector:
    """Gathers problems while files are read, so that a user sees all of them at once."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._noted: set[str] = set()

    def add(self, path: Path | str, place: str, problem: str) -> None:
        """Note one problem, once, at ``place`` (a path inside the file, may be empty)."""
        line = ": ".join(part for part in (str(path), place, problem) if part)
        if line not in self._noted:
            self._noted.add(line)
            self.problems.append(line)

    def read(self, path: Path) -> Any:
        """Read a structured file; None (and a problem noted) when it cannot be read."""
        try:
            value = files.read_structured(path)
        except ConfigError as exc:
            for problem in exc.problems:
                self.add(path, "", problem)
            return None
        if value is None or value in ({}, []):
            self.add(path, "", "is empty")
            return None
        return value

    def validate(self, model: type[Model], value: Any, path: Path, place: str = "") -> Model | None:
        """Validate ``value`` strictly; None (and all problems noted) when it does not fit."""
        try:
            return model.model_validate_json(files.json_bytes(value), strict=True)
        except TypeError as exc:
            self.add(path, place, f"cannot be read as JSON: {exc}; quote keys that are not text")
        except ValidationError as exc:
            for error in exc.errors(include_url=False, include_context=False):
                self.add(path, *_describe(error, place))
        return None

    def raise_if_any(self, source: str) -> None:
        """Raise one ConfigError with everything found.

        Raises:
            ConfigError: when any problem was noted.
        """
        if self.problems:
            self.fail(source)

    def fail(self, source: str) -> NoReturn:
        """Raise the ConfigError for what was noted."""
        raise ConfigError(source, self.problems)


def _describe(error: Any, place: str) -> tuple[str, str]:
    """Place and message of one pydantic error, with the offending value."""
    where, parts = place, list(error["loc"])
    if error["type"] == "missing":  # pydantic names the alias, the documentation the field
        parts[-1] = to_snake(parts[-1])
    for part in parts:
        if isinstance(part, int):
            where += f"[{part}]"
        else:
            where += f".{part}" if where else str(part)
    if error["type"] == "extra_forbidden" and is_secret(str(parts[-1])):
        return where, "unknown key; secrets come from the environment only, take it out of the file"
    if error["type"] == "extra_forbidden":
        return where, "unknown key; check the spelling"
    if error["type"] == "missing":
        return where, "is required"
    shown = repr(error["input"])
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return where, f"{error['msg']} (found {shown})"
