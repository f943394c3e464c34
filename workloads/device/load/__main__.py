"""The command line of the load: so many uploads by so many clients.

The last line on stdout is the summary that `ebb compare` reads (docs/workload.md).
"""

import argparse
import asyncio
import sys

from answers.summary import report

from .bodies import bodies
from .uploads import uploads


def main() -> int:
    """Runs it; 1 where an upload failed."""
    parser = argparse.ArgumentParser(prog="load", description=__doc__)
    parser.add_argument("--url", required=True, help="where the service listens")
    parser.add_argument("--uploads", type=int, default=160)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--bodies", type=int, default=24, help="different bodies")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    made = bodies(args.seed, args.bodies)
    return report(asyncio.run(uploads(args.url, made, args.clients, args.uploads)))


if __name__ == "__main__":
    sys.exit(main())
