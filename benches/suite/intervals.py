"""Medians with 95 % bootstrap intervals: what may be said from a few repetitions."""

import warnings

import numpy
from scipy import stats

RESAMPLES = 2000


def _bootstrap(samples: tuple, statistic) -> tuple[float, float]:
    with warnings.catch_warnings():
        # Repetitions that agree to the last digit have an interval of no width.
        warnings.simplefilter("ignore")
        found = stats.bootstrap(
            samples, statistic, n_resamples=RESAMPLES, method="percentile", vectorized=True, rng=numpy.random.default_rng(1)
        )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def median(values: list[float]) -> tuple[float, float, float]:
    """Low end, median, high end. One repetition has no interval but itself."""
    middle = float(numpy.median(values))
    if len(values) < 2:
        return middle, middle, middle
    low, high = _bootstrap((values,), lambda v, axis: numpy.median(v, axis=axis))
    return low, middle, high


def ratio(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """The same of median(ours) / median(theirs)."""
    middle = float(numpy.median(ours) / numpy.median(theirs))
    if len(ours) < 2 or len(theirs) < 2:
        return middle, middle, middle

    def quotient(a, b, axis):
        return numpy.median(a, axis=axis) / numpy.median(b, axis=axis)

    low, high = _bootstrap((ours, theirs), quotient)
    return low, middle, high


def geometric_mean(values: list[float]) -> float:
    return float(stats.gmean(values))
