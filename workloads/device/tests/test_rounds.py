"""What a round held is read from a trial's samples. Run: .venv/bin/python -m unittest"""

import unittest

from answers.rounds import rounds


class RoundsTest(unittest.TestCase):
    def test_the_highest_of_a_load_and_the_end_of_a_rest(self) -> None:
        rss = {0.5: 9, 1.5: 50, 2.5: 70, 3.5: 60, 4.5: 30, 5.5: 20}
        run = {
            "phases": [
                {"name": "warm", "kind": "warmup", "round": 1, "from_s": 0, "to_s": 1},
                {"name": "load", "kind": "burst", "round": 1, "from_s": 1, "to_s": 3},
                {"name": "rest", "kind": "idle", "round": 1, "from_s": 3, "to_s": 6},
            ],
            "samples": [{"at_s": at, "rss_bytes": value * 1_000_000, "pss_bytes": None} for at, value in rss.items()],
        }
        self.assertEqual(rounds(run), [["load", "1", "70.0", "-"], ["rest", "1", "20.0", "-"]])


if __name__ == "__main__":
    unittest.main()
