"""The service and its two mistakes. Run in workloads/leaky: .venv/bin/python -m unittest"""

from argparse import Namespace
import asyncio
from contextlib import ExitStack
import json
from pathlib import Path
import unittest
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from load import run
from service.watches import KEPT, BadPattern, Leak, Message, Pattern, Watch, Watches

from answers import memory
from answers.tried import free_port, start_python

FOLDER = Path(__file__).parent


def watch(number: int) -> Watch:
    messages = [Message(sender="a", text=f"error {number}"), Message(sender="a", text="fine")]
    return Watch(pattern="^(error|warning) [0-9]+$", messages=messages)


class Mistakes(unittest.TestCase):
    def malloc_bytes(self) -> int:
        return memory.in_use().malloc_bytes

    def test_the_same_messages_match_whatever_the_mistake(self) -> None:
        for leak in Leak:
            result = Watches(leak).run(watch(1))
            self.assertEqual([message.text for message in result.matches], ["error 1"], leak)

    def test_results_are_kept_for_ever_only_with_the_mistake(self) -> None:
        for leak, expected in {Leak.NONE: False, Leak.PYTHON: True}.items():
            watches = Watches(leak)
            first = watches.run(watch(0))
            for number in range(KEPT):
                watches.run(watch(number))
            self.assertEqual(watches.result(first.watch_id) is not None, expected, leak)

    def test_patterns_stay_allocated_only_with_the_mistake(self) -> None:
        grown = {}
        for leak in (Leak.NONE, Leak.NATIVE):
            watches = Watches(leak)
            for number in range(KEPT + 10):
                watches.run(watch(number))
            before = self.malloc_bytes()
            for number in range(200):
                watches.run(watch(number))
            grown[leak] = self.malloc_bytes() - before
        self.assertLess(grown[Leak.NONE], 200_000)
        self.assertGreater(grown[Leak.NATIVE], 500_000)

    def test_a_pattern_that_is_none_is_refused(self) -> None:
        with self.assertRaises(BadPattern):
            Pattern("(")


class Service(unittest.TestCase):
    def test_the_load_is_answered_and_notices_a_wrong_answer(self) -> None:
        with ExitStack() as stack:
            uvicorn = ("uvicorn", "service.app:app", "--port", "{port}")
            url, _ = start_python(stack, FOLDER, *uvicorn, LEAKY_LEAK="python")
            args = Namespace(url=url, requests=20, messages=6, clients=2, seed="t")
            outcome = asyncio.run(run(args))
            self.assertEqual((len(outcome.latencies_ms), outcome.errors), (20, []))
            body = json.dumps({"pattern": "(", "messages": []}).encode()
            asked = Request(f"{url}/v1/watches", body, {"Content-Type": "application/json"}, method="POST")
            with self.assertRaises(HTTPError) as refused:
                urlopen(asked)
            self.assertEqual(refused.exception.code, 422)
            # A service that is not there fails every request.
            args = Namespace(**{**vars(args), "url": f"http://127.0.0.1:{free_port()}"})
            self.assertEqual(len(asyncio.run(run(args)).errors), 20)
