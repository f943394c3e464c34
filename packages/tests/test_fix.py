"""The line that `ebb fix --channel release` writes for pip does what it says."""

from pathlib import Path
import re
import subprocess
import tarfile
import tempfile
import unittest

from made import BARE, DIST, one
from test_wheel import BASE


class Line(unittest.TestCase):
    def test_pip_installs_ebb_which_writes_the_library(self):
        archive, wheel = one("*-ARCH-linux.tar.gz"), one("*ARCH.whl")
        if subprocess.run([BASE, "-c", "import ensurepip, venv"], env=BARE, capture_output=True).returncode:
            self.skipTest("not installed: python3-venv")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with tarfile.open(archive) as tar:
                program, library = (tar.extractfile(f"{tar.getnames()[0]}/{path}").read() for path in ("bin/ebb", "lib/libebbmalloc.so"))
            (folder / "ebb").write_bytes(program)
            (folder / "ebb").chmod(0o755)
            (folder / "Dockerfile").write_text('FROM python:3-slim\nRUN pip install -q flask\nCMD ["flask"]\n')
            command = [folder / "ebb", "fix", "--channel", "release", "--write", "Dockerfile"]
            subprocess.run(command, cwd=folder, env=BARE | {"XDG_STATE_HOME": f"{name}/state"}, check=True, capture_output=True)
            [line] = re.findall(r"^RUN (.* ebb .*)$", (folder / "Dockerfile").read_text(), re.MULTILINE)
            self.assertEqual(line, f"pip install -q ebbmalloc=={wheel.name.split('-')[1]} && ebb library --out /usr/local/lib")
            # Of dist/, not of the index; into a folder of the test.
            subprocess.run([BASE, "-m", "venv", folder / "venv"], env=BARE, check=True)
            environment = BARE | {"PATH": f"{folder}/venv/bin:/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(DIST.resolve())}
            done = subprocess.run(["sh", "-c", line.replace("/usr/local/lib", f"{folder}/lib")], env=environment, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((folder / "lib/libebbmalloc.so").read_bytes(), library)
