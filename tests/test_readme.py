"""The documentation names only what exists: commands, options, files, make targets, exit codes."""

import re
from pathlib import Path

import pytest
import typer

from gno_dist import errors
from gno_dist.cli.main import app

from .conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = typer.main.get_command(app)


def fenced(text: str) -> str:
    return "\n".join(re.findall(r"```(?:\w*)\n(.*?)```", text, re.DOTALL))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
class TestPage:
    def test_commands_exist(self, page: Path) -> None:
        commands = set(getattr(COMMANDS, "commands", {}))
        named = set(re.findall(r"`?gno-dist ([a-z]+)\b", page.read_text(encoding="utf-8")))
        assert named <= commands | {"is", "command"}, sorted(named - commands)

    def test_options_exist(self, page: Path) -> None:
        """Every ``--option`` beside a gno-dist command is one of that command's."""
        subs = getattr(COMMANDS, "commands", {})
        for line in page.read_text(encoding="utf-8").splitlines():
            for command, rest in re.findall(r"gno-dist ([a-z]+)([^`|]*)", line):
                if command not in subs or hasattr(subs[command], "commands"):
                    continue
                known = {opt for p in subs[command].params for opt in (*p.opts, *p.secondary_opts)}
                asked = set(re.findall(r"(?<!\S)(--[a-z-]+)", rest)) - {"--help"}
                assert asked <= known, f"{command}: {sorted(asked - known)}"

    def test_links_lead_somewhere(self, page: Path) -> None:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), target

    def test_make_targets_exist(self, page: Path) -> None:
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
        text = page.read_text(encoding="utf-8")
        named = set(re.findall(r"`make ([a-z-]+)`", text))
        named |= set(re.findall(r"^make ([a-z-]+)", fenced(text), re.MULTILINE))
        assert named <= targets, sorted(named - targets)


def test_every_exit_code_is_documented() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    codes = {
        cls.exit_code
        for cls in vars(errors).values()
        if isinstance(cls, type) and issubclass(cls, errors.GnoDistError)
    }
    for code in codes | {0, 1}:
        assert re.search(rf"^\|? *`?{code}`?\b", text, re.MULTILINE), code
