"""Errors keep their fields across processes; Ray's exceptions cross the border in one table."""

import importlib
import inspect
import pickle
import pkgutil
from typing import Any

import pytest

import gno_dist
from gno_dist.errors import (
    BackendError,
    BudgetExceeded,
    ConfigError,
    GnoDistError,
    Interrupted,
    JournalDamaged,
    ModelNotFound,
    PlanMismatch,
    StorageFailed,
    WorkerLost,
)

EXAMPLES: dict[type[GnoDistError], tuple[dict[str, Any], str, int]] = {
    GnoDistError: ({}, "", 3),
    ConfigError: (
        {"source": "a.yaml", "problems": ("one", "two")},
        "a.yaml: 2 problems\n  - one\n  - two",
        2,
    ),
    PlanMismatch: ({"source": "job", "problems": ("one",)}, "job: 1 problem\n  - one", 2),
    BackendError: ({"backend": "llama", "detail": "no file"}, "llama: no file", 2),
    ModelNotFound: ({"backend": "llama", "detail": "no file"}, "llama: no file", 2),
    WorkerLost: (
        {"backend": "llama", "reason": "oom", "detail": "killed"},
        "llama: worker lost (oom): killed",
        3,
    ),
    JournalDamaged: ({"path": "j.jsonl", "line": 7, "detail": "torn"}, "j.jsonl:7: torn", 3),
    BudgetExceeded: ({"what": "failures", "detail": "raise it"}, "failures: raise it", 3),
    StorageFailed: (
        {"path": "j.jsonl", "detail": "No space left on device"},
        "j.jsonl: No space left on device; nothing that was finished before is lost",
        3,
    ),
    Interrupted: ({}, "", 130),
}
"""Class -> fields, message, exit code."""


def tree(base: type[GnoDistError]) -> set[type[GnoDistError]]:
    return {base}.union(*(tree(child) for child in base.__subclasses__()))


def test_every_error_of_the_package_is_in_the_tree_and_here() -> None:
    for module in pkgutil.walk_packages(gno_dist.__path__, "gno_dist."):
        importlib.import_module(module.name)
    ours = {error for error in tree(GnoDistError) if error.__module__.startswith("gno_dist")}
    assert ours == EXAMPLES.keys()
    drawn = importlib.import_module("gno_dist.errors").__doc__ or ""
    assert all(error.__name__ in drawn for error in ours)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.__name__)
def test_an_error_keeps_everything_through_pickle(error: type[GnoDistError], protocol: int) -> None:
    fields, message, exit_code = EXAMPLES[error]
    original = error(*fields.values())
    copy = pickle.loads(pickle.dumps(original, protocol))
    assert type(copy) is error
    assert vars(copy) == vars(original) == fields
    assert str(copy) == message
    assert copy.exit_code == exit_code


def test_problems_are_kept_as_they_were_when_raised() -> None:
    problems = ["one"]
    error = ConfigError("a.yaml", problems)
    problems.append("two")
    assert error.problems == ("one",)


LOST_BY_NAME = {
    "ActorDiedError": "died",
    "ActorUnavailableError": "died",
    "GetTimeoutError": "timeout",
    "LocalRayletDiedError": "died",
    "NodeDiedError": "died",
    "ObjectFetchTimedOutError": "died",
    "ObjectFreedError": "died",
    "ObjectLostError": "died",
    "ObjectReconstructionFailedError": "died",
    "OutOfMemoryError": "oom",
    "OwnerDiedError": "died",
    "RayActorError": "died",
    "RayChannelTimeoutError": "timeout",
    "ReferenceCountingAssertionError": "died",
    "TaskCancelledError": "died",
    "WorkerCrashedError": "died",
}
"""Everything in ``ray.exceptions`` that says a worker, actor, node or object is gone or late."""

NOT_LOST = {
    # Bases, and what wraps an exception that the actor raised itself.
    *("RayError", "RaySystemError", "RayTaskError", "CrossLanguageError", "UserCodeException"),
    # The caller's mistake, or a setting of the cluster: another worker would meet it again.
    *("ActorAlreadyExistsError", "ActorHandleNotFoundError", "AuthenticationError"),
    *("ActorUnschedulableError", "TaskUnschedulableError", "RuntimeEnvSetupError"),
    *("ActorPlacementGroupRemoved", "TaskPlacementGroupRemoved", "PendingCallsLimitExceeded"),
    *("OufOfBandObjectRefSerializationException", "UnserializableException"),
    # The machine is full: retrying fills it further.
    *("ObjectStoreFullError", "OutOfDiskError", "PlasmaObjectNotAvailable"),
    # Parts of Ray that are not used here: generators, async actors, compiled graphs, transports.
    *("ObjectRefStreamEndOfStreamError", "StreamingGeneratorReplayInconsistentError"),
    *(
        "AsyncioActorExit",
        "RayCgraphCapacityExceeded",
        "RayChannelError",
        "RayDirectTransportError",
    ),
    "RpcError",
}


def ray_exceptions() -> dict[str, type[BaseException]]:
    from ray import exceptions as ray_errors  # not above: Ray reads the environment on import

    return {
        name: found
        for name, found in vars(ray_errors).items()
        if inspect.isclass(found)
        and issubclass(found, BaseException)
        and found.__module__.startswith("ray.exceptions")
    }


def test_someone_has_decided_about_every_exception_of_ray() -> None:
    # A new Ray may lack some of these; what it adds must be sorted into one of the two.
    assert ray_exceptions().keys() - LOST_BY_NAME.keys() - NOT_LOST == set()
    assert not LOST_BY_NAME.keys() & NOT_LOST


@pytest.mark.parametrize("name", LOST_BY_NAME)
def test_every_loss_has_a_row(name: str) -> None:
    from workers.failures import LOST, TABLE

    error = ray_exceptions()[name]
    blank = error.__new__(error)
    assert isinstance(blank, LOST)
    reason = next(reason for kind, reason in TABLE.items() if isinstance(blank, kind))
    assert reason == LOST_BY_NAME[name]


@pytest.mark.parametrize("name", sorted(NOT_LOST))
def test_nothing_else_has_a_row(name: str) -> None:
    from workers.failures import LOST

    error = ray_exceptions().get(name)
    assert error is None or not issubclass(error, LOST)


@pytest.mark.parametrize(
    ("name", "arguments", "reason", "detail"),
    [
        ("OutOfMemoryError", ["node\n\n  is  full \n"], "oom", "node is  full"),
        ("NodeDiedError", ["node 7 is gone"], "died", "node 7 is gone"),
        ("TimeoutError", [], "timeout", "TimeoutError"),
        ("GetTimeoutError", ["late"], "timeout", "late"),
        ("NodeDiedError", ["x" * 900], "died", "x" * 300),
    ],
)
def test_a_loss_says_whose_why_and_how_in_one_line(
    name: str, arguments: list[str], reason: str, detail: str
) -> None:
    from workers.failures import worker_lost

    error = ({"TimeoutError": TimeoutError} | ray_exceptions())[name]
    lost = worker_lost("llama gemma", error(*arguments))
    assert (lost.backend, lost.reason) == ("llama gemma", reason)
    assert lost.detail.startswith(detail)
    assert len(lost.detail) <= 300
    assert "\n" not in lost.detail
