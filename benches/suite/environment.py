"""The locked environment (requirements.txt) that statistics and pictures need."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
VENV = HERE / ".venv"


def enter() -> None:
    """Goes on in the environment, making or refreshing it first; ends the program where it cannot be made."""
    if Path(sys.prefix).resolve() == VENV.resolve():
        return
    if subprocess.run([HERE.parent / "ci/python-env.sh", HERE], stdout=sys.stderr).returncode != 0:
        sys.exit(1)
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), *sys.argv])
