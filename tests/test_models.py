"""Model references: what is found, what is not, and what the user is told to do."""

from pathlib import Path

import pytest

from gno_dist.backends import models
from gno_dist.errors import BackendError, ModelNotFound


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty model folder."""
    monkeypatch.setenv("GNO_DIST_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("GNO_DIST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "models"


def put(path: Path, data: bytes = b"GGUF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_a_file_is_named_by_its_content(folder: Path, tmp_path: Path) -> None:
    one, two = put(tmp_path / "one.gguf"), put(tmp_path / "two.gguf")
    found = models.locate(f"file:{one}")
    assert (found.path, found.size_bytes) == (one, 4)
    assert found.sha256 == models.locate(f"file:{two}").sha256


def test_a_changed_file_has_another_digest(folder: Path, tmp_path: Path) -> None:
    path = put(tmp_path / "one.gguf")
    before = models.locate(f"file:{path}").sha256
    put(path, b"GGUF2")
    assert models.locate(f"file:{path}").sha256 != before


def test_a_damaged_digest_memo_is_computed_again(folder: Path, tmp_path: Path) -> None:
    path = put(tmp_path / "one.gguf")
    before = models.locate(f"file:{path}").sha256
    (memo,) = (tmp_path / "cache" / "digests").iterdir()
    memo.write_text("{", encoding="utf-8")
    assert models.locate(f"file:{path}").sha256 == before


@pytest.mark.parametrize("place", ["own/repo/m.gguf", "m.gguf"])
def test_a_hub_reference_is_looked_up_in_the_model_folder_first(folder: Path, place: str) -> None:
    path = put(folder / place)
    assert models.locate("hf:own/repo/m.gguf").path == path


def test_a_hub_model_that_is_not_here_says_where_to_put_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = models.find_spec
    monkeypatch.setattr(
        models, "find_spec", lambda name: None if name == "huggingface_hub" else real(name)
    )
    with pytest.raises(ModelNotFound) as caught:
        models.locate("hf:own/repo/m.gguf")
    assert str(folder / "own" / "repo") in caught.value.detail
    assert "GNO_DIST_MODELS" in caught.value.detail


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("gemma", "not a model reference"),
        ("http://x", "not a model reference"),
        ("embedded:", "not a model reference"),
        ("embedded:gpt", "there are"),
        ("hf:own/repo", "write hf:OWNER/REPO/FILE.gguf"),
        ("file:/no/such.gguf", "there is no such file"),
    ],
)
def test_a_wrong_reference_says_what_is_right(folder: Path, reference: str, said: str) -> None:
    with pytest.raises(BackendError, match=said):
        models.locate(reference)


def test_a_failed_making_leaves_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(part: Path) -> None:
        part.write_bytes(b"half")
        raise RuntimeError("power cut")

    monkeypatch.setattr(models, "_assemble_q4", broken)
    with pytest.raises(RuntimeError, match="power cut"):
        models.locate("embedded:gemma3-270m-q4")
    assert [path.name for path in folder.iterdir() if path.suffix != ".lock"] == []
