"""Ray for one job: started when the first pool opens, on loopback, and gone without a trace.

A local cluster is private: own token file (0600), own short temporary folder (0700), no dashboard,
every port on loopback. The environment is put back afterwards. Ray writes crash reports to file
descriptor 1, so that is pointed at stderr while Ray runs: what we print for machines stays clean.
"""

import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from gno_dist.errors import BackendError

_PREFIX = "gno-ray-"
_SET_BY_RAY = ("PYTHONBREAKPOINT", "RAY_CLIENT_MODE")
"""Variables that Ray itself sets in the driver and leaves behind."""


class RayCluster:
    """A connection to Ray: a private local cluster, or one that an address names."""

    def __init__(self, address: str = "local", num_cpus: int | None = None) -> None:
        self._address = address
        self._num_cpus = num_cpus
        self._folder: Path | None = None
        self._environment: dict[str, str | None] = {}
        self._stdout: int | None = None
        self._started = False

    def prepare(self) -> None:
        """Set the environment that Ray reads when it is imported; a second call does nothing.

        Raises:
            BackendError: ray is imported already, so that its ports would not stay on loopback.
        """
        if self._environment:
            return
        if "ray" in sys.modules:
            raise BackendError("ray", "was imported before its environment was set")
        self._environment = {name: os.environ.get(name) for name in _SET_BY_RAY}
        self._set_environment(
            {
                "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
                "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
            }
        )
        if self._address == "local":
            # AF_UNIX paths hold 107 bytes, and Ray adds about 50: the folder must be short.
            _remove_leftovers(Path(_short_temp()))
            prefix = f"{_PREFIX}{os.getpid()}-"
            self._folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_short_temp()))
            token = self._folder / "token"
            token.touch(mode=0o600)
            token.write_text(secrets.token_hex(32), encoding="ascii")
            self._set_environment(
                {
                    "RAY_AUTH_MODE": "token",
                    "RAY_AUTH_TOKEN_PATH": str(token),
                    # Unset, Ray binds its ports on every interface, even for a local cluster.
                    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
                    "RAY_ADDRESS": None,
                }
            )

    def start(self) -> None:
        """Connect; a second start does nothing.

        Raises:
            BackendError: Ray cannot be started or reached.
        """
        if self._started:
            return
        self.prepare()
        self._stdout = os.dup(1)
        os.dup2(2, 1)
        try:
            self._connect()
        except Exception as exc:
            self.stop()
            raise BackendError(f"ray ({self._address})", f"{type(exc).__name__}: {exc}") from exc
        self._started = True

    def _connect(self) -> None:
        if self._address not in {"local", "auto"}:
            _reach(self._address)
        import ray

        private: dict[str, Any] = {
            "num_cpus": self._num_cpus,
            "include_dashboard": False,
            "object_store_memory": 100 * 2**20,
            # Ray opens its own folder to everyone; the one above it stays private.
            "_temp_dir": str(self._folder / "r") if self._folder else None,
        }
        ray.init(
            address=self._address,
            namespace=f"gno-{os.getpid()}",
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
            **(private if self._address == "local" else {}),
        )

    @property
    def logs(self) -> Path | None:
        """Where a local cluster's processes write; None for a cluster that others run."""
        return self._folder and self._folder / "r" / "session_latest" / "logs"

    def free(self) -> str:
        """What no actor has taken, for people."""
        import ray

        left: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
        return f"{left.get('CPU', 0.0):g} CPUs and {left.get('GPU', 0.0):g} GPUs"

    def _set_environment(self, wanted: Mapping[str, str | None]) -> None:
        for name, value in wanted.items():
            self._environment.setdefault(name, os.environ.get(name))
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def stop(self) -> None:
        """Disconnect, end a private cluster, put environment and stdout back."""
        if self._started:
            import ray

            ray.shutdown()
            self._started = False
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._environment.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._stdout is not None:
            os.dup2(self._stdout, 1)
            os.close(self._stdout)
            self._stdout = None


def _reach(address: str) -> None:
    """Ray itself tries an address for over a minute before it says that nobody is there.

    Raises:
        ValueError: not HOST:PORT or ray://HOST:PORT.
        OSError: nobody answers there.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ValueError("write local, auto, HOST:PORT or ray://HOST:PORT")
    socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()


def _short_temp() -> str:
    usual = tempfile.gettempdir()
    return "/tmp" if len(usual) > 30 and os.path.isdir("/tmp") else usual


def _remove_leftovers(parent: Path) -> None:
    """Remove our folders whose process was killed before it could."""
    for folder in parent.glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).split("-")[0]
        own = folder.is_dir() and folder.stat().st_uid == os.getuid()
        if own and pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
