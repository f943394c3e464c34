"""The command line of the load: queries at a rate for some seconds.

The last line on stdout is the summary that `ebb compare` reads (docs/workload.md).
"""

import argparse
import asyncio
import sys

from answers.summary import report

from .queries import queries
from .traffic import traffic


def main() -> int:
    """Runs it; 1 where a query failed."""
    parser = argparse.ArgumentParser(prog="load", description=__doc__)
    parser.add_argument("--url", required=True, help="where the service listens")
    parser.add_argument("--rate", type=float, default=5.0, help="queries a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--limit", type=int, default=48, help="queries in flight")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    asked = queries(args.seed)
    outcome = asyncio.run(traffic(args.url, asked, args.rate, args.seconds, args.limit, args.seed))
    return report(outcome)


if __name__ == "__main__":
    sys.exit(main())
