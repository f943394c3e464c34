"""Sums over arrays of samples: a library that CPython loads late, calling back into CPython for every
sample, and hardly a request to malloc. Prints the fewest nanoseconds that a pass took."""

import array
import math
import operator
import random
import sys
import time

if not getattr(array, "__file__", None):
    sys.exit("this Python has array built in; far.py needs one that loads it as a library (--python)")

draw = random.Random(3)
recordings = [array.array("h", [draw.randint(-20000, 20000) for _ in range(510)]) for _ in range(48)]


def figures(samples):
    mean = sum(samples) / len(samples)
    return mean, math.sqrt(sum(map(operator.mul, samples, samples)) / len(samples)), max(max(samples), -min(samples))


def one_pass():
    start = time.perf_counter_ns()
    for samples in recordings:
        figures(samples)
    return time.perf_counter_ns() - start


print(min(one_pass() for _ in range(25)))
