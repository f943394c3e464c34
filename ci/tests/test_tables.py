"""The tables in the pages are those that the kept results give."""

import json
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ci"))

import tables  # noqa: E402

# Of a kept result with its picture.
BYTES_MOST = 100_000


class Pages(unittest.TestCase):
    def test_every_table_is_that_of_the_results(self):
        for page in tables.pages():
            text = page.read_text()
            self.assertEqual(text, tables.renewed(text), f"{page}: ci/tables.py writes it")

    def test_each_page_has_its_tables(self):
        for page in tables.pages():
            self.assertRegex(page.read_text(), tables.PLACE, page)

    def test_only_what_is_between_the_marks_is_replaced(self):
        page = "before\n<!-- table: leaky -->\nold\n<!-- end of table -->\nafter\n"
        new = tables.renewed(page)
        self.assertTrue(new.startswith("before\n<!-- table: leaky -->\n| MB |"))
        self.assertTrue(new.endswith("<!-- end of table -->\nafter\n"))
        self.assertEqual(tables.renewed(new), new)


class Cells(unittest.TestCase):
    def test_a_spread_that_rounds_to_the_median_is_left_out(self):
        self.assertEqual(tables.spread([217.4, 217.2, 217.4]), "217")
        self.assertEqual(tables.spread([63.5, 63.3, 63.6]), "63.5 (63.3–63.6)")

    def test_the_best_peer_is_none_of_ours(self):
        self.assertEqual(tables.best_peer({"a": "3 (1-4)", "b": "-", "ebbmalloc-off": "1", "c": "2"}), (2.0, "c"))

    def test_times_of_a_disturbed_trial_are_hidden(self):
        self.assertTrue(tables.hides_times({"disturbed": "in 9 of 10 runs other programs took up to 72 %"}))
        self.assertFalse(tables.hides_times({"disturbed": "in 1 of 20 runs other programs took up to 19 %"}))
        self.assertFalse(tables.hides_times({"disturbed": None}))


class Results(unittest.TestCase):
    def test_a_result_is_small(self):
        for result in [*ROOT.glob("benches/results/*.json"), *ROOT.glob("workloads/*/result.json")]:
            picture = result.with_suffix(".svg")
            size = result.stat().st_size + (picture.stat().st_size if picture.exists() else 0)
            self.assertLess(size, BYTES_MOST, result)

    def test_every_result_names_its_command_date_and_machine(self):
        for path in ROOT.glob("benches/results/*.json"):
            result = json.loads(path.read_text())
            self.assertTrue(result["command"] and result["date"] and result["machine"], path)
        for path in ROOT.glob("workloads/*/result.json"):
            for trial in json.loads(path.read_text()).values():
                self.assertTrue(trial["command"] and trial["started"] and trial["machine"], path)


if __name__ == "__main__":
    unittest.main()
