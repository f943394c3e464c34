"""The tables in the pages are those that the kept results give."""

import json
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ci"))

sys.path.append(str(ROOT / "workloads"))

import publish  # noqa: E402
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
        self.assertTrue(new.startswith("before\n<!-- table: leaky -->\nMB |"))
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


class Publish(unittest.TestCase):
    @staticmethod
    def variant(name: str, env: dict, mb: float, others: float) -> dict:
        rest = {"median": mb * 1e6, "min": mb * 1e6, "max": mb * 1e6, "versus_first": None}
        run = {"disturbance": {"others_cpu_share": others}}
        summary = {"runs": 1, "figures": {"after_rest": rest}}
        return {"name": name, "allocator": "ebbmalloc", "env": env, "runs": [run], "summary": summary}

    def test_figures_command_and_disturbance_of_a_trial_are_kept(self):
        workload = {"name": "sse", "profile": "demo"}
        told = {"cpu": "A", "processors": 2, "memory_bytes": 8e9, "system": "Debian", "kernel": "6.18.1-x"}
        variants = [self.variant("ebbmalloc", {}, 63.4567, 0.0), self.variant("off", {"EBB_CONF": "python:off"}, 75, 0.5)]
        kept = publish.trial(
            {
                "started": "2026-11-25T02:47:31Z",
                "workload": workload,
                "machine": told,
                "metric": "rss",
                "repetitions": 1,
                "variants": variants,
                "verdict": {"sentence": "Nothing to gain."},
            }
        )
        expected = "ebb compare workloads/sse --profile demo -n 1 --variants ebbmalloc,off=ebbmalloc+EBB_CONF=python:off"
        self.assertEqual(kept["command"], expected)
        self.assertEqual(kept["disturbed"], "in 1 of 2 runs other programs took up to 50 % of the processors")
        self.assertEqual(kept["machine"], "A, 2 processors, 8.0 GB, Debian, Linux 6.18.1")
        self.assertEqual([v["name"] for v in kept["variants"]], ["ebbmalloc", "ebbmalloc+EBB_CONF=python:off"])
        self.assertEqual(kept["variants"][0]["after_rest_mb"], [63.46, 63.46, 63.46])
        self.assertEqual(json.loads(publish.text_of({"demo": kept})), {"demo": kept})


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
