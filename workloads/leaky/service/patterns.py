"""POSIX regular expressions of the C library, by ctypes.

`regcomp` allocates what a pattern comes to, and `regfree` must give it back: that is in the manual,
and nothing in Python reminds of it.
"""

import ctypes

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
