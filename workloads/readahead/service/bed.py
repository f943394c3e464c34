"""PLINK's .bed: two bits a genotype, four genotypes a byte, variant by variant.

Pure. The first three bytes of a file are its magic; here they are left out, so that a variant's
bytes lie at a multiple of a row's length.
"""

import numpy as np
from numpy.typing import NDArray

# By the number of alternative alleles; a missing allele makes the genotype missing.
HOM_REF, HET, HOM_ALT, MISSING = 0b11, 0b10, 0b00, 0b01

_CODES = np.full(256, MISSING, dtype=np.uint8)
_CODES[[0, 1, 2]] = HOM_REF, HET, HOM_ALT


def pack(alleles: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Bytes of a block of (variants, samples, 2) alleles: 0, 1, or -1 where one is missing."""
    variants, samples, _ = alleles.shape
    counts = alleles[:, :, 0] + alleles[:, :, 1]
    counts[(alleles < 0).any(axis=2)] = -1
    codes = _CODES[counts.view(np.uint8)]
    quads = codes.reshape(variants, samples // 4, 4)
    packed: NDArray[np.uint8] = (
        quads[:, :, 0] | quads[:, :, 1] << np.uint8(2) | quads[:, :, 2] << np.uint8(4) | quads[:, :, 3] << np.uint8(6)
    )
    return packed
