"""A report of orders: parsed from JSON, grouped, answered as text; a few of each are kept."""

import json
import random

from flask import Flask

app = Flask(__name__)
recent: dict[int, list[dict]] = {}


@app.get("/report/<int:day>")
def report(day: int) -> str:
    random.seed(day)
    document = json.dumps([
        {"id": i, "customer": f"customer {random.randrange(5000)}", "note": "x" * random.randrange(20, 900)}
        for i in range(20_000)
    ])
    orders = json.loads(document)
    groups: dict[str, list[str]] = {}
    for order in orders:
        groups.setdefault(order["customer"], []).append(order["note"])
    recent[day % 50] = orders[::400]
    return "".join(f"{name}: {sum(map(len, notes))}\n" for name, notes in groups.items())
