"""What the bots ask for. Run in workloads/warden: .venv/bin/python -m unittest"""

import json
import random
import unittest

from load import FRONT_PAGE, hits, log_lines


class Bots(unittest.TestCase):
    def test_one_request_of_each_bot_is_the_front_page(self) -> None:
        for seed in range(20):
            found = list(hits(random.Random(seed), 40))
            self.assertEqual(len(found), 40)
            self.assertEqual(sum(hit.path == FRONT_PAGE for hit in found), 1)
            addresses = {hit.headers["X-Forwarded-For"] for hit in found}
            self.assertGreater(len(addresses), 35)

    def test_the_same_seed_asks_for_the_same(self) -> None:
        one, same, other = (list(hits(random.Random(seed), 40)) for seed in ("1", "1", "2"))
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)

    def test_the_log_is_as_long_as_asked_and_has_whole_lines(self) -> None:
        lines = list(log_lines("1", 100_000))
        self.assertLess(abs(sum(map(len, lines)) - 100_000), 20_000)
        for line in lines:
            self.assertIn("address", json.loads(line))
