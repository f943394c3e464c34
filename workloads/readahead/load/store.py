"""The zarr array that the service serves, made once: the same for the same numbers.

Alleles are drawn variant by variant with a frequency of its own, mostly rare, as in real cohorts;
one in a thousand is missing. Beside it lies the checksum of each row of chunks in its .bed
form, computed here by another way than the service's.
"""

from dataclasses import dataclass
import json
from pathlib import Path
import shutil
import zlib

from numcodecs import Blosc
import numpy as np
from numpy.typing import NDArray
import zarr

CHUNK_VARIANTS, CHUNK_SAMPLES = 1000, 2500
CHECKSUMS = "bed.crc32.json"
MISSING_SHARE = 0.001


@dataclass(frozen=True, slots=True)
class Size:
    """Chunks down and across."""

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
    """Of each row of chunks."""
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
