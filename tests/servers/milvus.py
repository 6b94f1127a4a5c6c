"""A standalone Milvus server from the PyPI package ``milvus``, which holds the server itself.

It is fenced as far as it allows: every part is told to use 127.0.0.1, all ports are free ones, and all files are in one
folder. It listens on all interfaces nevertheless, so a machine that others can reach needs a firewall.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tests.servers.processes import Server, end, free_port, started, wait_until

# After a kill, a server waits until the leases of its former self have run out.
_LEASE_S = 3
_PARTS = ("rootCoord", "proxy", "queryCoord", "queryNode", "indexNode", "dataCoord", "dataNode")


@dataclass(frozen=True)
class MilvusServer(Server):
    """A running server."""

    @property
    def uri(self) -> str:
        """Address for ``--index.uri``."""
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """Stop it as a crash would."""
        end(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Stop it; what it has acknowledged is in its folder."""
        end(self.pid)


def start(folder: Path, *, port: int | None = None) -> MilvusServer:
    """Start a server on a folder, which is made where it is absent; raises RuntimeError where it is not installed."""
    try:
        import milvus
    except ImportError as error:
        raise RuntimeError("the Milvus server is not installed; run make servers") from error
    folder = folder.absolute()
    config = milvus.MilvusServerConfig(data_dir=str(folder))
    port = port or free_port()
    for name in [name for name in config.configurable_items if name.endswith("_port")]:
        config.configs[name] = port if name == "proxy_port" else free_port()
    for part in _PARTS:
        config.set(f"{part}.ip", "127.0.0.1")
    config.set("common.session.ttl", _LEASE_S)
    # The package tries each port without the option that lets a restarted server have its port back at once.
    config.try_bind_port = lambda port: socket.create_server(("127.0.0.1", port))
    config.resolve()
    _place_etcd(folder)
    milvus._initialize_data_files(str(folder))
    health = free_port()
    environment = dict(
        os.environ,
        DEPLOY_MODE="STANDALONE",
        METRICS_PORT=str(health),
        MILVUS_RUN_DIR=str(folder / "run"),
        LD_LIBRARY_PATH=str(folder / "bin"),
    )
    command = [str(folder / "bin" / "milvus"), "run", "standalone"]
    process = started(command, folder / "logs" / "output.log", env=environment, cwd=folder)
    wait_until(lambda: _is_healthy(health), "Milvus starts", process=process)
    return MilvusServer(process.pid, port, str(folder))


def _place_etcd(folder: Path) -> None:
    """Give the etcd inside the server ports of its own, which the package has no setting for."""
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    etcd = {
        "name": "default", "data-dir": str(folder / "data" / "etcd.data"),
        "listen-client-urls": client, "advertise-client-urls": client,
        "listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster": f"default={peer}",
        "log-level": "error", "log-outputs": [str(folder / "logs" / "etcd.log")],
    }  # fmt: skip
    place = folder / "configs" / "etcd.yaml"
    place.write_text(json.dumps(etcd))
    settings = folder / "configs" / "milvus.yaml"
    settings.write_text(settings.read_text().replace("\netcd:\n", f"\netcd:\n  config:\n    path: {place}\n", 1))


def _is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as reply:
            return b"OK" in reply.read()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
