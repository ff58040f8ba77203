"""Structured query expansion: the prompt, the grammar and the reading of what a model wrote; pure.

The schema is the specification's: ``lexicalQueries`` and ``vectorQueries`` (at most five each),
optional ``hyde`` and ``notes``, nothing else.
"""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from gno_dist.records import Expansion

EXAMPLES = (
    "Task: rewrite a search query as JSON with short keyword queries and full questions.\n\n"
    'Query: parking permit cost\nJSON: {"lexicalQueries": ["parking permit price", "car park fee"],'
    ' "vectorQueries": ["How much does a permit for the car park cost?"]}\n\n'
    'Query: Drucker druckt nicht\nJSON: {"lexicalQueries": ["Drucker Störung", "Druckproblem"],'
    ' "vectorQueries": ["Was tun, wenn der Drucker kein Papier bedruckt?"]}\n\n'
    'Query: changer de mot de passe\nJSON: {"lexicalQueries": ["mot de passe modifier",'
    ' "réinitialiser accès"], "vectorQueries": ["Comment puis-je changer mon mot de passe ?"]}\n\n'
)
"""Few-shot examples: base models follow examples, not instructions."""

GRAMMAR = r"""
root ::= " {\"lexicalQueries\": [" text (", " text){0,2} "], \"vectorQueries\": [" text (", " text){0,1} "]}"
text ::= "\"" [^"\\\x00-\x1F]{3,80} "\""
"""  # noqa: E501 - one rule, one line: GBNF rules end with the line
"""GBNF that admits exactly the JSON asked for; strings are bounded so that it ends."""

_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


class _Schema(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    lexical_queries: list[str] = Field(max_length=5)
    vector_queries: list[str] = Field(max_length=5)
    hyde: str | None = None
    notes: str | None = None


def prompt(query: str) -> list[str]:
    """The prompt as segments: the examples (shared by all queries), then the query."""
    return [EXAMPLES, f"Query: {query}\nJSON:"]


def parse(text: str) -> tuple[Expansion | None, str | None]:
    """Read a model's output: the expansion, or None and what is wrong with it.

    Text around the outermost braces is ignored. Blank variants are dropped.
    """
    match = _OBJECT.search(text)
    if match is None:
        return None, "no JSON object in the output"
    try:
        raw = _Schema.model_validate_json(match.group())
    except ValidationError as exc:
        first: Any = exc.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "JSON"
        return None, f"{where}: {first['msg']}"
    return (
        Expansion(
            lexical_queries=_clean(raw.lexical_queries),
            vector_queries=_clean(raw.vector_queries),
            hyde=raw.hyde,
            notes=raw.notes,
        ),
        None,
    )


def _clean(texts: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))
