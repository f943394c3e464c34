"""What `ebb` says of itself, by verbs."""

from dataclasses import dataclass
from pathlib import Path
import re
import subprocess

VERB = re.compile(r"^  ([a-z][a-z-]*)  +\S", re.MULTILINE)


@dataclass(frozen=True)
class Help:
    command: str  # ebb why
    text: str  # as printed

    @property
    def page(self) -> str:
        return f"commands/{self.command.replace(' ', '-')}.md"


def asked(program: Path, *verbs: str) -> str:
    """Its `--help` in a pipe, whatever the terminal here."""
    done = subprocess.run([program, *verbs, "--help"], check=True, stdout=subprocess.PIPE, text=True, env={})
    return done.stdout


def verbs(text: str) -> list[str]:
    """Those of a list `Commands:`."""
    _, _, listed = text.partition("\nCommands:\n")
    return [verb for verb in VERB.findall(listed.partition("\n\n")[0]) if verb != "help"]


def every(program: Path, *above: str) -> list[Help]:
    """The program's, then that of each verb, and of theirs."""
    text = asked(program, *above)
    found = [Help(" ".join(["ebb", *above]), text)]
    for verb in verbs(text):
        found += every(program, *above, verb)
    return found
