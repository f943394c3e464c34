"""What is asked: some queries often, most of them seldom; the same for the same seed."""

from collections.abc import Iterator
import random
from typing import Any

GROUPS = (["region", "kind"], ["segment", "channel"], ["region", "segment"], ["kind"])
KINDS = ("order", "return", "refund", "call", "visit", "review")

DATASETS = 800
"""More than the cache holds, so that most queries reach the warehouse."""


def queries(seed: int) -> Iterator[dict[str, Any]]:
    """Queries without end."""
    rng = random.Random(seed)
    while True:
        # Popularity falls with the number, as 1/n.
        dataset = min(DATASETS - 1, int(DATASETS ** rng.random()) - 1 + rng.randrange(8))
        # What is asked of a data set is its own, so that a popular one is answered from the cache.
        shape = random.Random(dataset)
        yield {
            "dataset": dataset,
            "days": shape.randint(2, 8),
            "min_amount": float(shape.choice([0, 5, 50, 250])),
            "kinds": shape.sample(KINDS, k=shape.randint(0, 4)),
            "group_by": shape.choice(GROUPS),
        }
