"""What a worker writes: events of a chosen size, the same for the same seed."""

from collections.abc import Iterator
import json
import random

WORDS = (
    "stream subscriber replay cursor page arena buffer token result summary source figure "
    "table query window answer plan step tool call reading writing waiting checking"
).split()


def events(run_id: str, count: int, size_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Kind and JSON text of each event; the last one completes the run."""
    rng = random.Random(run_id)
    # Words are drawn once: drawing 225 MB of them anew would take longer than the trial's phases.
    text = " ".join(rng.choices(WORDS, k=size_bytes // 2))
    for number in range(count - 1):
        yield "tool.result", event(run_id, number, text, size_bytes, rng)
    yield "run.completed", json.dumps({"seq": count - 1, "run_id": run_id}).encode()


def event(run_id: str, number: int, text: str, size_bytes: int, rng: random.Random) -> bytes:
    """One event: a description of about 300 bytes and a text that fills it up to its size."""
    body = {
        "seq": number,
        "run_id": run_id,
        "actor": {"kind": "agent", "name": rng.choice(WORDS), "attempt": rng.randint(1, 3)},
        "usage": {"input_tokens": rng.randint(100, 9999), "output_tokens": rng.randint(10, 999)},
        "tags": rng.sample(WORDS, k=4),
        "content": "",
    }
    room = max(0, size_bytes - len(json.dumps(body)))
    start = rng.randrange(max(1, len(text) - room))
    body["content"] = text[start : start + room]
    return json.dumps(body).encode()
