"""Every error that leaves this package, drawn as a tree; each class says who erred.

::

    GnoDistError
     ├ ConfigError(source, problems)        the user's files or flags, all problems      exit 2
     │   └ PlanMismatch(source, problems)   the job folder holds another plan            exit 2
     ├ BackendError(backend, detail)        a model, index or library cannot be opened   exit 2
     │   └ ModelNotFound(backend, detail)   the model file is not on this machine        exit 2
     ├ WorkerLost(backend, reason, detail)  a worker died, hung or ran out of memory;
     │                                      raised by pools, handled by dispatch only
     ├ JournalDamaged(path, line, detail)   a line in the journal cannot be read         exit 3
     ├ BudgetExceeded(what, detail)         a failure or cost budget is used up          exit 3
     ├ StorageFailed(path, detail)          a file of the job cannot be written          exit 3
     └ Interrupted()                        the user stopped the job                     exit 130

Bad *cases* are not exceptions: they are ``Unscored`` or ``Failed`` values (see records).
Every error keeps its fields through pickle, since errors cross process borders: all fields are
positional and given to ``super().__init__``.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

LostReason = Literal[
    "segfault", "abort", "illegal", "exit", "killed", "oom", "died", "timeout", "frozen"
]
"""How a worker was lost: a crash by its signal (segfault, abort, illegal instruction), an exit of
its own, a kill from outside, no memory, for a reason nobody knows (died), over its deadline
(timeout), or without a heartbeat (frozen)."""

OUTSIDE: frozenset[LostReason] = frozenset({"frozen", "killed"})
"""Losses that say nothing about what the worker was doing."""


class GnoDistError(Exception):
    """Base of all errors of this package; ``exit_code`` is what the command line returns."""

    exit_code: ClassVar[int] = 3


class ConfigError(GnoDistError):
    """The user's file, flag or environment is wrong; ``problems`` lists everything found."""

    exit_code: ClassVar[int] = 2

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        super().__init__(source, tuple(problems))
        self.source = source
        self.problems = tuple(problems)

    def __str__(self) -> str:
        head = f"{self.source}: {len(self.problems)} problem{'s' * (len(self.problems) != 1)}"
        return "\n".join([head, *(f"  - {problem}" for problem in self.problems)])


class PlanMismatch(ConfigError):
    """A job folder holds another plan than the one that should run; problems say what differs."""


class BackendError(GnoDistError):
    """A backend (model, index, library) cannot be opened or cannot do what is asked."""

    exit_code: ClassVar[int] = 2

    def __init__(self, backend: str, detail: str) -> None:
        super().__init__(backend, detail)
        self.backend = backend
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.backend}: {self.detail}"


class ModelNotFound(BackendError):
    """The model file is not on this machine; ``detail`` says where to put it."""


class WorkerLost(GnoDistError):
    """A worker did not answer: it died, hung, ran out of memory or lost its host."""

    def __init__(self, backend: str, reason: LostReason, detail: str) -> None:
        super().__init__(backend, reason, detail)
        self.backend = backend
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.backend}: worker lost ({self.reason}): {self.detail}"


class JournalDamaged(GnoDistError):
    """A line inside the journal (not its torn tail) is not a valid record; line 0: not known."""

    def __init__(self, path: str, line: int, detail: str) -> None:
        super().__init__(path, line, detail)
        self.path = path
        self.line = line
        self.detail = detail

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.detail}"


class BudgetExceeded(GnoDistError):
    """A budget set by the user is used up; ``detail`` names the option that raises it."""

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(what, detail)
        self.what = what
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}"


class StorageFailed(GnoDistError):
    """The disk is full, read-only or gone; what was written before is whole."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}; nothing that was finished before is lost"


class Interrupted(GnoDistError):
    """The user stopped the job; everything finished is in the journal."""

    exit_code: ClassVar[int] = 130
