"""Bytes of the .bed view of a zarr store, from chunks that threads decode ahead of the reader.

One instance a reader: it is opened, read, and closed. Nothing is kept after that. A .bed file of PLINK has two bits a
genotype, four genotypes a byte, variant by variant. Its first three bytes are its magic; here they are left out, so
that a variant's bytes lie at a multiple of a row's length.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray
import zarr

Packed = NDArray[np.uint8]
# By the number of alternative alleles; a missing allele makes the genotype missing.
HOM_REF, HET, HOM_ALT, MISSING = 0b11, 0b10, 0b00, 0b01

_CODES = np.full(256, MISSING, dtype=np.uint8)
_CODES[[0, 1, 2]] = HOM_REF, HET, HOM_ALT


def pack(alleles: NDArray[np.int8]) -> Packed:
    """Bytes of a block of (variants, samples, 2) alleles: 0, 1, or -1 where one is missing."""
    variants, samples, _ = alleles.shape
    counts = alleles[:, :, 0] + alleles[:, :, 1]
    counts[(alleles < 0).any(axis=2)] = -1
    codes = _CODES[counts.view(np.uint8)]
    quads = codes.reshape(variants, samples // 4, 4)
    packed: Packed = (
        quads[:, :, 0] | quads[:, :, 1] << np.uint8(2) | quads[:, :, 2] << np.uint8(4) | quads[:, :, 3] << np.uint8(6)
    )
    return packed


class Readahead:
    """An open store and its threads."""

    def __init__(self, path: Path, threads: int, ahead: int) -> None:
        """`ahead`: how many chunks are decoded, or being decoded, before they are asked for."""
        array = zarr.open_array(path, mode="r")
        self._array = array
        self._variants, self._samples, _ = array.shape
        self._chunk_variants, self._chunk_samples, _ = array.chunks
        self._columns = -(-self._samples // self._chunk_samples)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        self._ahead = ahead

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    @property
    def row_bytes(self) -> int:
        return self._samples // 4

    @property
    def size(self) -> int:
        return self._variants * self.row_bytes

    def read(self, offset: int, size: int) -> Iterator[bytes]:
        """The bytes from `offset` on, at most `size`, in pieces of one row of chunks."""
        end = min(offset + size, self.size)
        piece_bytes = self._chunk_variants * self.row_bytes
        first, last = offset // piece_bytes, -(-end // piece_bytes)
        chunks = [(row, column) for row in range(first, last) for column in range(self._columns)]
        waiting: deque[Future[Packed]] = deque()
        pieces = iter(chunks)

        def submit() -> None:
            for row, column in pieces:
                waiting.append(self._pool.submit(self._decode, row, column))
                if len(waiting) >= self._ahead:
                    return

        submit()
        for row in range(first, last):
            columns: list[Packed] = []
            while len(columns) < self._columns:
                columns.append(waiting.popleft().result())
                submit()
            start = row * piece_bytes
            whole = np.concatenate(columns, axis=1).tobytes()
            yield whole[max(offset - start, 0) : end - start]

    def _decode(self, row: int, column: int) -> Packed:
        """One chunk, read, decompressed and packed."""
        alleles = np.asarray(self._array.get_block_selection((row, column)))
        return pack(alleles)
