"""Steps in a series of rests are found, and noise, slopes and single peaks are none."""

import random
import unittest

from answers.steps import steps


def series(cycles: int, **rises: float) -> list[float]:
    """Rests of about 480 MB that vary by 0.05; `at_N` rises by so much from cycle N on."""
    rng = random.Random(7)
    at = {int(name.removeprefix("at_")): mb for name, mb in rises.items()}
    return [
        480 + rng.uniform(-0.05, 0.05) + sum(mb for cycle, mb in at.items() if cycle <= number)
        for number in range(1, cycles + 1)
    ]


class Steps(unittest.TestCase):
    def test_the_two_steps_of_the_real_case_are_found(self) -> None:
        found = steps(series(40, at_18=1.0, at_31=1.0))
        self.assertEqual([step.cycle for step in found], [18, 31])
        for step in found:
            self.assertAlmostEqual(step.mb, 1.0, delta=0.15)

    def test_noise_and_a_single_peak_are_none(self) -> None:
        self.assertEqual(steps(series(40)), [])
        rests = series(40)
        rests[20] += 30
        self.assertEqual(steps(rests), [])

    def test_a_slow_slope_is_none(self) -> None:
        self.assertEqual(steps([480 + 0.1 * cycle for cycle in range(40)]), [])


if __name__ == "__main__":
    unittest.main()
