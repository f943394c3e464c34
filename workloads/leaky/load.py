"""The load: clients that run watches one after another.

The last line on stdout is the summary that `ebb compare` reads (docs/workload.md).
"""

import argparse
import asyncio
import functools
import random
import sys

import aiohttp

from answers.clients import WrongAnswer, count, together
from answers.summary import Outcome, report

HOSTS = ["disk", "net", "queue", "login", "backup", "mail"]
PATTERN = r"^(error|warning|panic)[a-z ]* on ({hosts})-[0-9]{{1,4}}: (timeout|refused|full)"


def watch(rng: random.Random, messages: int) -> dict[str, object]:
    """A request: of its messages every third one matches."""
    hosts = rng.sample(HOSTS, k=3)
    kinds = ("error", "notice", "notice")
    return {
        "pattern": PATTERN.format(hosts="|".join(hosts)),
        "messages": [
            {
                "sender": f"agent-{rng.randrange(10_000)}",
                "text": f"{kinds[number % 3]} on {rng.choice(hosts)}-{rng.randrange(9999)}: "
                f"timeout after {rng.randrange(1000)} ms, {rng.getrandbits(256):x}",
                "labels": {"region": rng.choice(HOSTS), "trace": f"{rng.getrandbits(128):x}"},
            }
            for number in range(messages)
        ],
    }


async def ask(session: aiohttp.ClientSession, body: dict[str, object], expected: int) -> None:
    """One request; raises where not all messages match that should."""
    async with session.post("/v1/watches", json=body) as response:
        found = len((await response.json())["matches"])
    if found != expected:
        raise WrongAnswer(f"{found} of {expected} matches")


async def run(args: argparse.Namespace) -> Outcome:
    outcome = Outcome()

    async def client(session: aiohttp.ClientSession, number: int) -> None:
        rng = random.Random(f"{args.seed}/{number}")
        for _ in range(args.requests // args.clients):
            await count(outcome, ask(session, watch(rng, args.messages), -(-args.messages // 3)))

    clients = [functools.partial(client, number=number) for number in range(args.clients)]
    return await together(args.url, outcome, clients)


def main() -> int:
    parser = argparse.ArgumentParser(prog="load", description=__doc__)
    parser.add_argument("--url", required=True, help="where the service listens")
    parser.add_argument("--requests", type=int, default=600, help="of all clients together")
    parser.add_argument("--messages", type=int, default=30, help="in a request")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", default="0", help="other requests for another one")
    return report(asyncio.run(run(parser.parse_args())))


if __name__ == "__main__":
    sys.exit(main())
