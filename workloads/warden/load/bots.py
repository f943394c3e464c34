"""What bots ask for, the same for the same seed: other people's software, and the front page."""

from collections.abc import Iterator
from dataclasses import dataclass
import json
import random

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
    """One request."""

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
    """What comes with a request."""
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
