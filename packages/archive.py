"""An archive whose bytes depend on its files alone: sorted, of owner 0, with one time."""

import gzip
from pathlib import Path
import tarfile


def write(folder: Path, archive: Path, epoch: int, level: int = 9) -> None:
    """`archive` (.tar.gz) of everything in `folder`, below the name of `folder`."""
    with archive.open("wb") as file, gzip.GzipFile("", "wb", level, file, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for path in [folder, *sorted(folder.rglob("*"))]:
                tar.add(path, path.relative_to(folder.parent), recursive=False, filter=lambda entry: plain(entry, epoch))


def plain(entry: tarfile.TarInfo, epoch: int) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = epoch
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    if entry.issym():
        entry.mode = 0o777
    return entry
