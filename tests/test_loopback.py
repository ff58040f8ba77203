"""A private Ray: reachable from this machine alone, by us alone, and gone without a trace."""

import ipaddress
import os
import stat
import subprocess
import sys
from pathlib import Path

import orjson
import psutil
import pytest

from gno_dist.calls import PoolSpec
from gno_dist.pool import PoolLimits
from workers.cluster import RayCluster

pytestmark = pytest.mark.ray

ROOT = Path(__file__).resolve().parents[1]


def is_loopback(text: str) -> bool:
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def listening(processes: list[psutil.Process]) -> list[tuple[str, str, int]]:
    """(process name, address, port) of every listening TCP socket."""
    found = []
    for process in processes:
        try:
            name, sockets = process.name(), process.net_connections(kind="tcp")
        except psutil.NoSuchProcess:  # Ray's short-lived helpers
            continue
        found += [
            (name, socket.laddr.ip, socket.laddr.port)
            for socket in sockets
            if socket.status == psutil.CONN_LISTEN
        ]
    return found


async def test_every_listening_socket_is_on_loopback(ray_cluster: RayCluster) -> None:
    from workers.pool import RayPool

    spec = PoolSpec("fake", "fake one", {"name": "one"}, {})
    pool = RayPool(spec, PoolLimits(cpus=0.1), ray_cluster)
    await pool.open()
    try:
        (actor,) = await pool.pids()
        this = psutil.Process()
        tree = [this, *this.children(recursive=True)]
        sockets = listening(tree)
        workers = listening([psutil.Process(actor)])
    finally:
        await pool.close()
    assert actor in {process.pid for process in tree}
    names = {name for name, _, _ in sockets}
    assert {"gcs_server", "raylet"} <= names
    assert workers
    assert [socket for socket in sockets if not is_loopback(socket[1])] == []


def test_token_and_folder_are_ours_alone(ray_cluster: RayCluster) -> None:
    token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
    assert os.environ["RAY_AUTH_MODE"] == "token"
    for path, mode in ((token, 0o600), (token.parent, 0o700)):
        found = path.stat()
        assert stat.S_IMODE(found.st_mode) == mode
        assert found.st_uid == os.getuid()
    text = token.read_text(encoding="ascii")
    assert len(bytes.fromhex(text)) == 32
    # Everything Ray writes lies under the private folder.
    import ray

    session = Path(ray.get_runtime_context().get_session_name())
    assert (token.parent / "r" / session).is_dir()


STARTED_AND_STOPPED = """
import os
import orjson, psutil
from workers.cluster import RayCluster
before, output = dict(os.environ), os.fstat(1)
cluster = RayCluster("local", num_cpus=1)
cluster.start()
changed = [name for name in os.environ if os.environ[name] != before.get(name)]
changed += [name for name in before if name not in os.environ]
folder = os.path.dirname(os.environ["RAY_AUTH_TOKEN_PATH"])
children = psutil.Process().children(recursive=True)
os.write(1, b"while it runs\\n")
cluster.stop()
cluster.stop()
_, alive = psutil.wait_procs(children, timeout=30)
os.write(1, b"afterwards\\n")
after = os.fstat(1)
print(orjson.dumps({
    "changed": changed,
    "left in the environment": sorted(set(os.environ.items()) ^ set(before.items())),
    "stdout is back": (after.st_dev, after.st_ino) == (output.st_dev, output.st_ino),
    "folder is there": os.path.exists(folder),
    "children": len(children),
    "alive": [process.name() for process in alive],
}).decode())
"""


def test_a_stopped_cluster_leaves_no_trace(tmp_path: Path) -> None:
    """In a process of its own: a second Ray beside the test run's."""
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("RAY_")}
    environment = {**inherited, "RAY_ADDRESS": "127.0.0.1:1", "RAY_USAGE_STATS_ENABLED": "1"}
    found = subprocess.run(
        [sys.executable, "-c", STARTED_AND_STOPPED],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    first, line = found.stdout.splitlines()
    assert first == "afterwards"
    assert "while it runs" in found.stderr
    said = orjson.loads(line)
    assert {"RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"} <= set(said.pop("changed"))
    assert said.pop("children") >= 2
    assert said == {
        "left in the environment": [],
        "stdout is back": True,
        "folder is there": False,
        "alive": [],
    }
