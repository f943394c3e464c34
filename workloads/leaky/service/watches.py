"""Watches: a pattern, the messages that it is tried on, the result, which can be fetched again.

Two mistakes of real services can be switched on. `python`: results are kept for ever, since the
bound of the store was forgotten. `native`: the compiled pattern is dropped without being freed, so
that no Python object is left that a heap profiler could find.
"""

from collections import OrderedDict
from enum import StrEnum
import uuid

from pydantic import BaseModel, ConfigDict, Field

from .patterns import Pattern

KEPT = 64
"""Results that can be fetched again, where the store has its bound."""


class Leak(StrEnum):
    """Which mistake the service has."""

    NONE = "none"
    PYTHON = "python"
    NATIVE = "native"


class Message(BaseModel):
    """One message."""

    sender: str
    text: str
    labels: dict[str, str] = Field(default_factory=dict)


class Watch(BaseModel):
    """What a client asks: a pattern, and messages to try it on."""

    model_config = ConfigDict(extra="forbid")

    pattern: str = Field(min_length=1, max_length=2000)
    messages: list[Message] = Field(max_length=1000)


class Result(BaseModel):
    """What came of it."""

    watch_id: str
    matches: list[Message]
    messages: int


class Watches:
    """All watches of this process."""

    def __init__(self, leak: Leak) -> None:
        self._leak = leak
        self._results: OrderedDict[str, tuple[Watch, Result]] = OrderedDict()

    def run(self, watch: Watch) -> Result:
        """Tries the pattern on every message and keeps what came of it."""
        pattern = Pattern(watch.pattern)
        matches = [message for message in watch.messages if pattern.matches(message.text)]
        if self._leak is not Leak.NATIVE:
            pattern.close()
        result = Result(watch_id=uuid.uuid4().hex, matches=matches, messages=len(watch.messages))
        self._results[result.watch_id] = watch, result
        if self._leak is not Leak.PYTHON and len(self._results) > KEPT:
            self._results.popitem(last=False)
        return result

    def result(self, watch_id: str) -> Result | None:
        """What came of an earlier one, while it is kept."""
        found = self._results.get(watch_id)
        return found[1] if found else None
