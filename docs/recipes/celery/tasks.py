"""Reports that a pool of processes makes; a few lines of each are kept, as a cache would."""

import json
import os
import random

from celery import Celery

address = os.environ.get("BROKER", "redis://127.0.0.1:6379/0")
app = Celery("tasks", broker=address, backend=address)
kept: dict[int, list[dict]] = {}


@app.task
def report(day: int) -> int:
    random.seed(day)
    orders = json.loads(json.dumps([
        {"id": i, "customer": f"customer {random.randrange(5000)}", "note": "x" * random.randrange(20, 900)}
        for i in range(100_000)
    ]))
    kept[day % 50] = orders[::2000]
    return sum(len(order["note"]) for order in orders)
