"""Why a worker's process ended: from what Ray says, what the process wrote last, and the kernel.

Ray reports a crash, a kill and an exit by the same words. A crash leaves its signal and stack on
the worker's stderr, an exit its code; a kill leaves nothing, but the kernel counts its own.
"""

import re
from pathlib import Path
from typing import NamedTuple

from gno_dist.errors import LostReason

_SIGNALS: dict[str, tuple[LostReason, str]] = {
    "SIGSEGV": ("segfault", "segmentation fault"),
    "SIGBUS": ("segfault", "bus error"),
    "SIGABRT": ("abort", "abort"),
    "SIGILL": ("illegal", "illegal instruction: a library was built for another processor"),
    "SIGFPE": ("abort", "arithmetic error"),
}
_RECEIVED = re.compile(r"\*\*\* (SIG[A-Z]+) received")
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)', re.M)
_ASSERTION = re.compile(r"^.*(?:GGML_ASSERT|GGML_ABORT|Assertion).*$", re.M)
_EXIT = re.compile(r"exit(?:s with an exit|ed with) code (\d+)")
_PID = re.compile(r"\bpid: (\d+)")
EXIT_MARK = "gno-dist: this worker exited with code"
"""Written by the actor before ``os._exit``, which leaves no trace of its own."""


class Death(NamedTuple):
    """Why a process ended, and a line for people."""

    reason: LostReason
    detail: str


def cause_of_death(message: str, last_words: str, oom_kills: int) -> Death:
    """The likeliest cause.

    Args:
        message: Ray's own words.
        last_words: the end of the process's stderr.
        oom_kills: processes that the kernel killed for memory since the worker started.
    """
    if found := _RECEIVED.search(last_words):
        reason, words = _SIGNALS.get(found[1], ("died", "signal"))
        said = _ASSERTION.search(last_words)
        frame = _FRAME.search(last_words, found.end())
        where = (
            f" in {frame['function']} ({Path(frame['file']).name}:{frame['line']})" if frame else ""
        )
        return Death(reason, f"{words} ({found[1]}){where}{f': {said[0].strip()}' if said else ''}")
    if found := re.search(rf"{EXIT_MARK} (\d+)", last_words) or _EXIT.search(message):
        return Death("exit", f"the process exited with code {found[1]}")
    if oom_kills:
        return Death("oom", "killed by the kernel, which was out of memory")
    return Death("killed", "killed from outside (or it exited without a trace)")


def pid_named_in(message: str) -> int:
    """The process id that Ray names, for a worker that died before its first beat; else 0."""
    found = _PID.search(message)
    return int(found[1]) if found else 0


def last_words(folder: Path, pid: int, limit: int = 20_000) -> str:
    """The end of what the worker with this pid wrote to stderr; empty when there is nothing."""
    text = ""
    for path in folder.glob(f"worker-*-{pid}.err"):
        text += path.read_bytes()[-limit:].decode("utf-8", "replace")
    return text


def oom_kills() -> int:
    """Processes on this host that the kernel killed for memory, since it started; 0 if unknown."""
    try:
        text = Path("/proc/vmstat").read_text(encoding="ascii")
    except OSError:
        return 0
    found = re.search(r"^oom_kill (\d+)$", text, re.M)
    return int(found[1]) if found else 0
