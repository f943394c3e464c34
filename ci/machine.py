"""What the scripts of ci ask of this machine, and of a built ebb."""

import os
import platform
import re
import socket
import subprocess
from pathlib import Path


def processors() -> str:
    """`AMD EPYC, 2 processors`."""
    model = re.search(r"^model name[^:]*: *(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{model[1] if model else platform.machine()}, {os.cpu_count()} processors"


def kernel() -> str:
    """`Linux 6.18.44`."""
    return f"Linux {platform.release().split('-')[0]}"


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def commit_of(ebb: Path) -> str:
    """The commit that the program names."""
    said = subprocess.run([ebb, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"^commit (\w+)", said, re.MULTILINE)[1]
