"""Exports of orders as CSV, made in the thread pool; a line of each is kept."""

import csv
import io
import random

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

kept: dict[int, list[str]] = {}


def export(request: Request) -> Response:
    day = request.path_params["day"]
    random.seed(day)
    rows = [[str(i), f"customer {random.randrange(5000)}", "x" * random.randrange(20, 900)] for i in range(20_000)]
    kept[day % 50] = [row[2] for row in rows[::400]]
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return Response(text.getvalue(), media_type="text/csv")


app = Starlette(routes=[Route("/export/{day:int}", export)])
