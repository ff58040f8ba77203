"""llama.cpp as a library in this process: its log, its build, and requantising files."""

import ctypes
from pathlib import Path

import llama_cpp

from gno_dist.errors import BackendError


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _silent(level: int, text: bytes, user: ctypes.c_void_p) -> None:
    """Drops llama.cpp's log; must stay referenced, since the library keeps the pointer."""


llama_cpp.llama_log_set(_silent, ctypes.c_void_p(0))


def build() -> str:
    """The library's version and the instruction sets it was compiled for."""
    info = llama_cpp.llama_print_system_info().decode("ascii", "replace")
    return f"llama-cpp-python {llama_cpp.__version__} | {info}".strip(" |")


def quantise(source: Path, target: Path, kind: str) -> None:
    """Write ``source`` requantised, as ``llama-quantize --allow-requantize`` does.

    Raises:
        BackendError: llama.cpp refused.
    """
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    params.allow_requantize = True
    params.nthread = 1
    code = llama_cpp.llama_model_quantize(
        str(source).encode(), str(target).encode(), ctypes.byref(params)
    )
    if code != 0:
        raise BackendError("llama", f"requantising {source.name} to {kind} failed (code {code})")
