"""The files of a package of a distribution, and nfpm, which packs them: at the version of packages/nfpm/go.mod."""

import gzip
import io
import os
from pathlib import Path
import re
import shutil
import subprocess
import tarfile

FOLDER = Path(__file__).resolve().parent / "nfpm"


def packed(text: str | bytes) -> bytes:
    return gzip.compress(text.encode() if isinstance(text, str) else text, 9, mtime=0)


def indented(text: str) -> str:
    """As a field of a control file: an empty line is a dot."""
    return "\n".join(f" {line}" if line.strip() else " ." for line in text.strip().splitlines())


class Contents:
    """The files of one package; those that are made for it lie below `folder`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.entries: list[dict] = []

    def file(self, path: str, source: Path | str | bytes, mode: int = 0o644, kind: str = "file") -> None:
        if not isinstance(source, Path):
            made = self.folder / path
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(source.encode() if isinstance(source, str) else source)
            source = made
        self.entries.append({"src": str(source.resolve()), "dst": f"/{path}", "type": kind, "file_info": {"mode": mode}})

    def link(self, path: str, target: str) -> None:
        self.entries.append({"src": target, "dst": f"/{path}", "type": "symlink"})

    def folder_of_its_own(self, path: str) -> None:
        """Which rpm removes only if the package names it."""
        self.entries.append({"dst": f"/{path}", "type": "dir", "file_info": {"mode": 0o755}})


def run(*arguments, epoch: int) -> None:
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch), "GOFLAGS": "-mod=readonly"}
    subprocess.run(["go", "tool", "nfpm", *arguments], cwd=FOLDER, env=environment, check=True, stdout=subprocess.DEVNULL)


def add_control_file(package: Path, name: str, text: bytes, epoch: int) -> None:
    """nfpm writes no `shlibs`, which libraries must have. A .deb is an `ar` of three members."""
    data, members, at = package.read_bytes(), [], 8
    while at < len(data):
        header, size = data[at:at + 60], int(data[at + 48:at + 58])
        members.append((header, data[at + 60:at + 60 + size]))
        at += 60 + size + size % 2
    with package.open("wb") as file:
        file.write(data[:8])
        for header, member in members:
            if header.startswith(b"control.tar.gz"):
                member = with_file(member, name, text, epoch)
            file.write(header[:48] + f"{len(member):<10}".encode() + header[58:] + member + b"\n" * (len(member) % 2))


def with_file(tar_gz: bytes, name: str, text: bytes, epoch: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(tar_gz)) as old, tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as new:
        for member in old:
            new.addfile(member, old.extractfile(member))
        entry = tarfile.TarInfo(f"./{name}")
        entry.size, entry.mtime, entry.mode = len(text), epoch, 0o644
        new.addfile(entry, io.BytesIO(text))
    return packed(out.getvalue())


def can_build() -> bool:
    """Whether there is a Go that knows `tool` lines and is new enough for nfpm."""
    if not shutil.which("go"):
        return False
    said = subprocess.run(["go", "env", "GOVERSION"], cwd=FOLDER, capture_output=True, text=True).stdout
    number = re.match(r"go(\d+)\.(\d+)", said)
    return bool(number) and tuple(map(int, number.groups())) >= (1, 25)
