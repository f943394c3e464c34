"""Watches: a pattern, the messages that it is tried on, the result, which can be fetched again.

Two mistakes of real services can be switched on. `python`: results are kept for ever, since the
bound of the store was forgotten. `native`: the compiled pattern is dropped without being freed, so
that no Python object is left that a heap profiler could find. Patterns are POSIX regular expressions of
the C library: `regcomp` allocates, `regfree` must free.
"""

from collections import OrderedDict
import ctypes
from enum import StrEnum
import uuid

from pydantic import BaseModel, ConfigDict, Field

KEPT = 64
"""Results that can be fetched again, where the store has its bound."""

REG_EXTENDED, REG_NOSUB = 1, 8
# glibc's regex_t has 64 bytes; more does no harm.
_REGEX_BYTES = 128

_libc = ctypes.CDLL(None)


class BadPattern(ValueError):
    """The C library does not take it."""


class Pattern:
    """A compiled pattern. It does not free itself: `close` does."""

    def __init__(self, text: str) -> None:
        self._compiled = ctypes.create_string_buffer(_REGEX_BYTES)
        if _libc.regcomp(self._compiled, text.encode(), REG_EXTENDED | REG_NOSUB) != 0:
            raise BadPattern(text)

    def matches(self, message: str) -> bool:
        """Whether it occurs."""
        return bool(_libc.regexec(self._compiled, message.encode(), 0, None, 0) == 0)

    def close(self) -> None:
        """Gives back what the C library has allocated."""
        _libc.regfree(self._compiled)


class Leak(StrEnum):
    NONE = "none"
    PYTHON = "python"
    NATIVE = "native"


class Message(BaseModel):
    sender: str
    text: str
    labels: dict[str, str] = Field(default_factory=dict)


class Watch(BaseModel):
    """What a client asks: a pattern, and messages to try it on."""

    model_config = ConfigDict(extra="forbid")

    pattern: str = Field(min_length=1, max_length=2000)
    messages: list[Message] = Field(max_length=1000)


class Result(BaseModel):
    watch_id: str
    matches: list[Message]
    messages: int


class Watches:
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
