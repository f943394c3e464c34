"""The load: it makes the store, and reads the .bed view as a genetics tool would. Verbs: store, session, pass.

The zarr array is made once, the same for the same numbers. Alleles are drawn variant by variant with a frequency of
its own, mostly rare, as in real cohorts; one in a thousand is missing. Beside it lies the checksum of each row of
chunks in its .bed form, computed here by another way than the service's. The last line on stdout of session and pass
is the summary for `ebb compare` (docs/workload.md).
"""

import argparse
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
import json
from pathlib import Path
import shutil
import sys
import time
from urllib.parse import urlsplit
import zlib

from numcodecs import Blosc
import numpy as np
from numpy.typing import NDArray
import zarr

from answers.summary import Outcome, report

MIB = 1 << 20
CHUNK_VARIANTS, CHUNK_SAMPLES = 1000, 2500
CHECKSUMS = "bed.crc32.json"
MISSING_SHARE = 0.001


@dataclass(frozen=True, slots=True)
class Size:
    rows: int
    columns: int

    @property
    def samples(self) -> int:
        """All of them."""
        return self.columns * CHUNK_SAMPLES

    @property
    def row_bytes(self) -> int:
        """Of one row of chunks in the .bed view."""
        return CHUNK_VARIANTS * self.samples // 4


def make(path: Path, size: Size) -> None:
    """Writes the store, unless it is there whole."""
    if (path / CHECKSUMS).is_file():
        return
    shutil.rmtree(path, ignore_errors=True)
    array = zarr.create_array(
        path,
        shape=(size.rows * CHUNK_VARIANTS, size.samples, 2),
        chunks=(CHUNK_VARIANTS, CHUNK_SAMPLES, 2),
        dtype="int8",
        compressors=Blosc(cname="zstd", clevel=7, shuffle=Blosc.AUTOSHUFFLE),
        zarr_format=2,
    )
    checksums = []
    for row in range(size.rows):
        alleles = draw(row, size.samples)
        array[row * CHUNK_VARIANTS : (row + 1) * CHUNK_VARIANTS] = alleles
        checksums.append(zlib.crc32(bed_bytes(alleles)))
    # Last, so that a store that was broken off is made anew.
    (path / CHECKSUMS).write_text(json.dumps(checksums))


def checksums(path: Path) -> list[int]:
    found: list[int] = json.loads((path / CHECKSUMS).read_text())
    return found


def draw(row: int, samples: int) -> NDArray[np.int8]:
    """The alleles of one row of chunks."""
    rng = np.random.default_rng(row)
    frequency = rng.beta(0.2, 2.0, size=(CHUNK_VARIANTS, 1, 1)).astype(np.float32)
    shape = (CHUNK_VARIANTS, samples, 2)
    alleles = (rng.random(shape, dtype=np.float32) < frequency).astype(np.int8)
    alleles[rng.random(shape, dtype=np.float32) < MISSING_SHARE] = -1
    return alleles


def bed_bytes(alleles: NDArray[np.int8]) -> bytes:
    """By way of single bits, low before high, as the format's description puts them."""
    one, other = alleles[:, :, 0], alleles[:, :, 1]
    missing = (one < 0) | (other < 0)
    alternatives = one + other
    low = (alternatives == 0) | missing
    high = (alternatives <= 1) & ~missing
    bits = np.stack([low, high], axis=2).reshape(len(alleles), -1)
    return np.packbits(bits, axis=1, bitorder="little").tobytes()


def ask(url: str, method: str, path: str, **headers: str) -> bytes:
    """One request; everything but a 2xx is an error."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=300)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        if response.status // 100 != 2:
            raise HTTPException(f"{path}: {response.status} {body[:200]!r}")
        return body
    finally:
        connection.close()


def store(args: argparse.Namespace) -> int:
    """Makes the store where it is not there yet."""
    make(args.store, Size(args.rows, args.columns))
    return 0


def session(args: argparse.Namespace) -> int:
    """The view is opened for the first time, and its length asked."""
    size = Size(args.rows, args.columns)
    start = time.perf_counter()
    told = json.loads(ask(args.url, "POST", "/session"))["size"]
    outcome = Outcome(seconds=time.perf_counter() - start)
    if told == size.rows * size.row_bytes:
        outcome.latencies_ms.append(outcome.seconds * 1000)
    else:
        outcome.errors.append(f"the view has {told} bytes, {size.rows * size.row_bytes} expected")
    return report(outcome)


def read(args: argparse.Namespace) -> int:
    """One pass: bytes from a place on, each whole row of chunks checked."""
    size = Size(args.rows, args.columns)
    wanted = args.mib * MIB
    offset = args.number * size.row_bytes % max(1, size.rows * size.row_bytes - wanted)
    start = time.perf_counter()
    body = ask(args.url, "GET", "/bed", Range=f"bytes={offset}-{offset + wanted - 1}")
    outcome = Outcome(seconds=time.perf_counter() - start)
    outcome.errors = wrong(body, offset, wanted, size.row_bytes, checksums(args.store))
    if not outcome.errors:
        outcome.latencies_ms.append(outcome.seconds * 1000)
    return report(outcome)


def wrong(body: bytes, offset: int, wanted: int, row_bytes: int, expected: list[int]) -> list[str]:
    """What is not as it should be."""
    if len(body) != wanted:
        return [f"{len(body)} of {wanted} bytes"]
    found = []
    for row in range(-(-offset // row_bytes), (offset + wanted) // row_bytes):
        start = row * row_bytes - offset
        if zlib.crc32(body[start : start + row_bytes]) != expected[row]:
            found.append(f"row {row} of chunks is not what was written")
    return found


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="load", description=__doc__)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--store", type=Path, required=True, help="folder of the zarr array")
    shared.add_argument("--rows", type=int, default=16, help="of chunks, 1000 variants each")
    shared.add_argument("--columns", type=int, default=5, help="of chunks, 2500 samples each")
    verbs = top.add_subparsers(required=True)

    verb = verbs.add_parser("store", parents=[shared], help="make the store")
    verb.set_defaults(run=store)

    verb = verbs.add_parser("session", parents=[shared], help="open the view")
    verb.add_argument("--url", required=True, help="where the service listens")
    verb.set_defaults(run=session)

    verb = verbs.add_parser("pass", parents=[shared], help="read from the view")
    verb.add_argument("--url", required=True, help="where the service listens")
    verb.add_argument("--number", type=int, default=0, help="of the pass: where it begins")
    verb.add_argument("--mib", type=int, default=16)
    verb.set_defaults(run=read)
    return top


def main() -> int:
    args = parser().parse_args()
    run: int = args.run(args)
    return run


if __name__ == "__main__":
    sys.exit(main())
