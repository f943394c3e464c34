"""The view as a reader sees it. Run in workloads/readahead: .venv/bin/python -m unittest"""

from contextlib import ExitStack
import json
from pathlib import Path
import tempfile
from typing import ClassVar
import unittest

from load import CHUNK_VARIANTS, MIB, Size, ask, bed_bytes, checksums, draw, make, wrong
import numpy as np
from service.readahead import Readahead, pack

from answers.tried import start_python

FOLDER = Path(__file__).parent
SIZE = Size(rows=2, columns=2)


class Packing(unittest.TestCase):
    def test_both_ways_of_packing_agree_on_every_genotype(self) -> None:
        pairs = [(one, other) for one in (-1, 0, 1) for other in (-1, 0, 1)]
        alleles = np.array(pairs * 4, dtype=np.int8).reshape(1, -1, 2)
        self.assertEqual(pack(alleles).tobytes(), bed_bytes(alleles))

    def test_the_codes_are_those_of_the_format(self) -> None:
        alleles = np.array([[[0, 0], [-1, 0], [0, 1], [1, 1]]], dtype=np.int8)
        self.assertEqual(pack(alleles).tolist(), [[0b00_10_01_11]])


class View(unittest.TestCase):
    """One small store for all of them."""

    stack: ClassVar[ExitStack]
    store: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        cls.stack = ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.store = Path(cls.stack.enter_context(tempfile.TemporaryDirectory())) / "store"
        make(cls.store, SIZE)

    def whole(self) -> bytes:
        return b"".join(bed_bytes(draw(row, SIZE.samples)) for row in range(SIZE.rows))

    def test_any_part_of_the_view_is_what_was_written(self) -> None:
        whole = self.whole()
        for ahead in (1, 3, 100):
            with Readahead(self.store, threads=3, ahead=ahead) as opened:
                self.assertEqual(opened.size, len(whole))
                for offset, size in ((0, 10), (SIZE.row_bytes - 5, 10), (7, len(whole)), (len(whole) - 3, 99)):
                    read = b"".join(opened.read(offset, size))
                    self.assertEqual(read, whole[offset : offset + size], (ahead, offset, size))

    def test_the_server_gives_it_itself_or_by_a_child(self) -> None:
        whole = self.whole()
        for reader in ("own", "child"):
            with self.subTest(reader), ExitStack() as stack:
                options = ("--store", str(self.store), "--reader", reader, "--threads", "2", "--ahead", "2")
                url, _ = start_python(stack, FOLDER, "service", "--port", "{port}", *options)
                told = json.loads(ask(url, "POST", "/session"))
                self.assertEqual(told["size"], len(whole))
                body = ask(url, "GET", "/bed", Range=f"bytes=0-{MIB - 1}")
                self.assertEqual(body, whole[:MIB])
                live = json.loads(ask(url, "GET", "/debug/live"))
                self.assertGreater(live["live_bytes"], 5_000_000)
                ask(url, "POST", "/debug/trim")

    def test_the_load_notices_what_is_wrong(self) -> None:
        expected, whole = checksums(self.store), self.whole()
        self.assertEqual(wrong(whole, 0, len(whole), SIZE.row_bytes, expected), [])
        self.assertEqual(len(wrong(whole[:-1], 0, len(whole), SIZE.row_bytes, expected)), 1)
        changed = bytearray(whole)
        changed[CHUNK_VARIANTS] ^= 1
        found = wrong(bytes(changed), 0, len(whole), SIZE.row_bytes, expected)
        self.assertEqual(found, ["row 0 of chunks is not what was written"])
