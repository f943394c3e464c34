"""What devices upload: recordings as JSON, 1.5 MB a batch on average; the same for a seed."""

import base64
import json
import math
import random

SENSORS = ("temperature humidity pressure voltage current vibration flow level speed torque noise light").split()
TAGS = "factory night calibrated remote outdoor spare test shift-a shift-b retrofit".split()
UNITS = ("C", "%", "hPa", "V", "A", "mm/s")

MEAN_BYTES = 1_500_000


def bodies(seed: int, count: int) -> list[bytes]:
    """Bodies of different sizes: many of less than a megabyte, a few of several."""
    rng = random.Random(seed)
    weights = [rng.lognormvariate(0.0, 0.8) for _ in range(count)]
    scale = MEAN_BYTES * count / sum(weights)
    return [body(rng, max(2_000, int(weight * scale))) for weight in weights]


def body(rng: random.Random, size_bytes: int) -> bytes:
    """One batch of about that size."""
    readings: list[dict[str, object]] = []
    size = 0
    while size < size_bytes:
        samples = rng.randbytes(2 * max(16, int(rng.lognormvariate(math.log(1000), 0.9))))
        entry = {
            "sensor": rng.choice(SENSORS),
            "at_ms": 1_760_000_000_000 + len(readings) * 250,
            "unit": rng.choice(UNITS),
            "quality": rng.randint(0, 100),
            "tags": rng.sample(TAGS, k=rng.randint(0, 4)),
            "samples": base64.b64encode(samples).decode(),
        }
        readings.append(entry)
        size += len(samples) * 4 // 3 + 150
    return json.dumps({"firmware": "4.1.7", "battery": rng.random(), "readings": readings}).encode()
