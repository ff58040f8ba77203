"""Secrets leave no trace: by value in every form, by name in messages, in every file written."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gno_dist.redact import Redactor, is_secret

from .conftest import PRESETS, write_tiny

KEY = 'sk-live-"q/1+2=é'
ENVIRONMENT = {"OPENAI_API_KEY": KEY, "PATH": "/usr/bin:/bin", "SHORT_TOKEN": "abc"}


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("AI_GATEWAY_API_KEY", True),
        ("HF_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("DB_PASSWORD", True),
        ("api-key", True),
        ("TOKEN_2", True),
        ("RAY_AUTH_TOKEN_PATH", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("MAX_TOKENS", False),
        ("MONKEY", False),
        ("KEYBOARD", False),
    ],
)
def test_names_that_say_secret(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        json.dumps(KEY)[1:-1],
        json.dumps(KEY, ensure_ascii=False)[1:-1],
        quote(KEY, safe=""),
        base64.b64encode(KEY.encode()).decode().rstrip("="),
    ],
)
def test_a_value_is_found_in_every_form(form: str) -> None:
    found = Redactor(ENVIRONMENT).text(f"refused: {form}!")
    assert form not in found
    assert found == "refused: [redacted OPENAI_API_KEY]!"


def test_values_that_contain_each_other_leave_no_rest() -> None:
    one = Redactor({"A_TOKEN": "12345678", "B_TOKEN": "12345678-90"})
    assert one.text("12345678-90 12345678") == "[redacted B_TOKEN] [redacted A_TOKEN]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("api_key=sk-123456", "api_key=[redacted]"),
        ("{'api_key': 'sk-123456'}", "{'api_key': '[redacted]'}"),
        ('{"x-api-key": "sk-123456"}', '{"x-api-key": "[redacted]"}'),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer [redacted]"),
        ("authorization: Basic dXNlcjpw", "authorization: Basic [redacted]"),
        ("https://me:pass1234@host/x", "https://me:[redacted]@host/x"),
        ("OPENAI_API_KEY=sk-123456 rest", "OPENAI_API_KEY=[redacted] rest"),
        ("password: hunter2x", "password: [redacted]"),
        # What only looks like it.
        ("max_tokens: 256", "max_tokens: 256"),
        ("12345678 tokens, key: value", "12345678 tokens, key: value"),
        ("see https://host:8080/a/b", "see https://host:8080/a/b"),
        ("token_count=123456789", "token_count=123456789"),
        ("the keyboard and the bearer", "the keyboard and the bearer"),
    ],
)
def test_what_stands_beside_a_secret_name(text: str, expected: str) -> None:
    one = Redactor(ENVIRONMENT)
    assert one.text(text) == expected
    assert one.text(expected) == expected, "a second time changes nothing"


def test_content_keeps_what_only_looks_secret() -> None:
    one = Redactor(ENVIRONMENT)
    assert one.content("password: hunter2x") == "password: hunter2x"
    assert one.content(f"it is {KEY}") == "it is [redacted OPENAI_API_KEY]"


JSON = st.recursive(
    st.text() | st.just(KEY) | st.just(f"x {KEY} y"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(JSON)
@settings(deadline=None, derandomize=True, max_examples=100)
def test_json_stays_json_and_loses_only_the_secret(value: object) -> None:
    one = Redactor(ENVIRONMENT)
    for ascii_only in (True, False):
        try:
            data = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8")
        except UnicodeEncodeError:  # a lone surrogate has no UTF-8
            continue
        read = json.loads(one.json(data))
        assert read == json.loads(
            json.dumps(value).replace(json.dumps(KEY)[1:-1], "[redacted OPENAI_API_KEY]")
        )


SECRET = "sk-test-3141592653"


def test_no_file_and_no_line_of_a_job_holds_a_key(tmp_path: Path) -> None:
    """The key stands in a case, in a fault's message and in a file name's place."""
    faulty = PRESETS.replace(
        '{backend: fake, model: "one"}', '{backend: fake, model: "one;raise=c2"}'
    )
    support = f"""
version: 1
name: support
kind: rubric
cases:
  - {{id: c1, input: "my key is {SECRET}", output: "Thanks."}}
  - {{id: c2, input: "c2 {SECRET}", output: "Api_key={SECRET}"}}
rubrics:
  answers: {{type: boolean, instructions: "Does the output answer the input?"}}
"""
    path = write_tiny(tmp_path, presets=faulty, support=support)
    found = subprocess.run(
        [sys.executable, "-m", "gno_dist.cli.main", "sweep", str(path), "--pool", "inline"],
        cwd=tmp_path,
        env={**os.environ, "TEST_API_KEY": SECRET, "GNO_DIST_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (job,) = (tmp_path / "results").iterdir()
    assert SECRET not in found.stdout + found.stderr
    written = {path.name: path.read_text("utf-8") for path in job.iterdir()}
    assert {"manifest.json", "journal.jsonl", "summary.json", "report.md", "status.json"} <= set(
        written
    )
    assert [name for name, text in written.items() if SECRET in text] == []
    assert "[redacted TEST_API_KEY]" in written["manifest.json"]


def test_a_key_in_a_preset_is_refused_and_not_shown(tmp_path: Path) -> None:
    wrong = PRESETS.replace("depth: thorough", f"depth: thorough\n    api_key: {SECRET}", 1)
    path = write_tiny(tmp_path, presets=wrong)
    found = subprocess.run(
        [sys.executable, "-m", "gno_dist.cli.main", "sweep", str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 2
    assert "secrets come from the environment only" in found.stderr
    assert SECRET not in found.stdout + found.stderr


def test_a_traceback_shows_no_key(tmp_path: Path) -> None:
    code = (
        "import sys; from gno_dist.cli import console; sys.argv = ['gno-dist', '--version']\n"
        "def broken(text=''): raise RuntimeError(f'cannot reach {key}')\n"
        f"key = '{SECRET}'; console.show = broken; console.main()"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TEST_API_KEY": SECRET},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "RuntimeError: cannot reach [redacted TEST_API_KEY]" in found.stderr
    assert SECRET not in found.stderr
