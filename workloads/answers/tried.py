"""A workload's server as its own tests start it: on a free port, stopped at the test's end."""

from contextlib import ExitStack
import os
from pathlib import Path
import socket
import subprocess
import sys
import time
from urllib.error import URLError
from urllib.request import urlopen

# Long enough for a machine that does much else.
READY_S = 300


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start_python(stack: ExitStack, folder: Path, *arguments: str, **env: str) -> tuple[str, subprocess.Popen[bytes]]:
    """Starts `python -m ARGUMENTS` in a folder on a free {port}, and waits for its /health; its address, and it."""
    port = str(free_port())
    process = subprocess.Popen(
        [sys.executable, "-m", *(word.replace("{port}", port) for word in arguments)],
        cwd=folder,
        env={**os.environ, **{name: value.replace("{port}", port) for name, value in env.items()}},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def stop() -> None:
        process.terminate()
        process.wait(timeout=60)

    stack.callback(stop)
    url = f"http://127.0.0.1:{port}"
    limit = time.monotonic() + READY_S
    while time.monotonic() < limit:
        if process.poll() is not None:
            break
        try:
            with urlopen(f"{url}/health"):
                return url, process
        except (URLError, OSError):
            time.sleep(0.05)
    raise AssertionError(f"{' '.join(arguments)} is not ready")
