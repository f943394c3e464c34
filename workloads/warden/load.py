"""The load: bots that scan a server, day after day; the same for the same seed.

They ask for other people's software and for the front page. Verbs: fill the log, warm up, and scan for a day. The
last line on stdout of warm and day is the summary that `ebb compare` reads (docs/workload.md).
"""

import argparse
import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
import functools
import json
from pathlib import Path
import random
import re
import sys

import aiohttp

from answers.clients import WrongAnswer, count, together
from answers.summary import Outcome, report

FIGURE = re.compile(rb"<p>(\d+) requests, \d+ visitors remembered</p>")
PROBES = (
    "/wp-login.php /wp-admin/setup-config.php /wp-content/plugins/hello.php /xmlrpc.php "
    "/phpmyadmin/index.php /phpMyAdmin/main.php /pma/ /adminer.php /mysql/admin/ "
    "/.env /.env.production /api/.env /.git/config /.aws/credentials /config.json /id_rsa "
    "/cgi-bin/luci /shell?cd+/tmp /vendor/phpunit/eval-stdin.php /boaform/admin/formLogin "
    "/robots.txt /favicon.ico /login /admin /actuator/health /solr/admin/info/system"
).split()
AGENTS = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0",
    "Mozilla/5.0 zgrab/0.x",
    "python-requests/2.31.0",
    "Go-http-client/1.1",
    "curl/7.88.1",
    "masscan/1.3 (https://github.com/robertdavidgraham/masscan)",
)
FRONT_PAGE = "/"
# Seconds since 1970 at which the log that the service finds begins.
LOG_BEGINS = 1_750_000_000


@dataclass(frozen=True, slots=True)
class Hit:
    path: str
    headers: dict[str, str]


def hits(rng: random.Random, count: int) -> Iterator[Hit]:
    """The requests of one bot, each from an address of its own; one is the front page."""
    front = rng.randrange(count)
    for number in range(count):
        path = rng.choice(PROBES)
        if rng.random() < 0.5:
            path += f"{'&' if '?' in path else '?'}r={rng.getrandbits(48):x}"
        yield Hit(FRONT_PAGE if number == front else path, headers(rng))


def headers(rng: random.Random) -> dict[str, str]:
    address = f"{rng.randint(1, 223)}.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}"
    return {
        "X-Forwarded-For": address,
        "User-Agent": rng.choice(AGENTS),
        "Accept": "*/*",
        "Accept-Language": rng.choice(("en", "de,en;q=0.5", "ru", "zh-CN,zh;q=0.9")),
        "Referer": f"http://{rng.getrandbits(32):08x}.example/",
    }


def log_lines(seed: str, size_bytes: int) -> Iterator[bytes]:
    """Lines of a file of the log, of that size, as the service writes them."""
    rng = random.Random(f"log {seed}")
    written = number = 0
    while written < size_bytes:
        for hit in hits(rng, 40):
            entry = {
                "at": LOG_BEGINS + number * 20,
                "address": hit.headers["X-Forwarded-For"],
                "method": "GET",
                "path": hit.path,
                "status": 200 if hit.path == FRONT_PAGE else 404,
                "rule": "wordpress" if "/wp-" in hit.path else None,
                "headers": {name.lower(): value for name, value in hit.headers.items()},
            }
            line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
            yield line
            written += len(line)
            number += 1


def fill(args: argparse.Namespace) -> int:
    """The older files of the log: those before the one that the service has begun."""
    begun = min(int(path.stem) for path in args.log.glob("*.jsonl"))
    for number in range(begun - args.files, begun):
        with (args.log / f"{number}.jsonl").open("wb") as log:
            log.writelines(log_lines(str(number), args.bytes))
    return 0


def warm(args: argparse.Namespace) -> int:
    return report(asyncio.run(scan(args.url, "warm-up", 1, 4)))


def day(args: argparse.Namespace) -> int:
    """All bots at once, each one request after another."""
    return report(asyncio.run(scan(args.url, f"day {args.number}", args.bots, args.hits)))


async def scan(url: str, seed: str, bots: int, requests: int) -> Outcome:
    outcome = Outcome()

    async def bot(session: aiohttp.ClientSession, number: int) -> None:
        for hit in hits(random.Random(f"{seed}/{number}"), requests):
            await count(outcome, ask(session, hit))

    return await together(url, outcome, [functools.partial(bot, number=number) for number in range(bots)])


async def ask(session: aiohttp.ClientSession, hit: Hit) -> None:
    async with session.get(hit.path, headers=hit.headers) as response:
        body = await response.read()
    if hit.path != FRONT_PAGE:
        if response.status != 404:
            raise WrongAnswer(f"{hit.path}: status {response.status}")
    else:
        found = FIGURE.search(body)
        if response.status != 200 or found is None or int(found[1]) == 0:
            raise WrongAnswer(f"status {response.status}, no figures")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="load", description=__doc__)
    verbs = top.add_subparsers(required=True)

    verb = verbs.add_parser("fill", help="write the log that the service finds")
    verb.add_argument("--log", type=Path, required=True)
    verb.add_argument("--files", type=int, default=6)
    verb.add_argument("--bytes", type=int, default=1_000_000, help="in each")
    verb.set_defaults(run=fill)

    verb = verbs.add_parser("warm", help="a few requests")
    verb.add_argument("--url", required=True, help="where the service listens")
    verb.set_defaults(run=warm)

    verb = verbs.add_parser("day", help="all bots, each one request after another")
    verb.add_argument("--url", required=True, help="where the service listens")
    verb.add_argument("--number", type=int, default=1, help="of the day")
    verb.add_argument("--bots", type=int, default=128)
    verb.add_argument("--hits", type=int, default=40, help="of each bot, one the front page")
    verb.set_defaults(run=day)
    return top


def main() -> int:
    args = parser().parse_args()
    run: Callable[[argparse.Namespace], int] = args.run
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
