"""The cases of the preload suite that need nothing but a program of tests/programs and its libc, read from the suite itself.

Left out: programs of this machine (git, compilers, servers), static programs, cgroups, profiles.
"""

from dataclasses import dataclass, field
from pathlib import Path
import re

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "crates/ebbmalloc-c/tests/preload"
PROGRAMS = ROOT / "crates/ebbmalloc-c/tests/programs"
LIBCS = {"Plain": "glibc", "Musl": "musl"}

# `cases! { name: Plain "program arguments" .method(arguments)...; }`
LINE = re.compile(r'^ +(\w+): (\w+) "([^"]*)"(.*?);$', re.MULTILINE | re.DOTALL)
STRING = r'"([^"]*)"'

# What an emulated processor runs, which is ten to a hundred times slower: of each subject what takes less than a second of a
# real one.
SAMPLE = re.compile(
    r"interfaces::(edge|new)|threads::musl_thread_frees|forks::forked|purge::(threads_asleep|musl_program)$"
    r"|huge_pages::a_block_that_is_freed|seccomp::(files_and|process_madvise.membarrier.clone_EPERM_before)"
    r"|namespaces::unshare_user_700|misuse::(double_newest|foreign_wild|interior|exit_unaligned)$"
    r"|loading::(constructor_before|resolver_in_the_program|plug_ins_come.*)$"
)
# glibc has mallinfo2 since 2.33, _Fork since 2.34; the counter of `huge` wants libc and its threads in one object.
SINCE = {"figures": (2, 33), "_Fork": (2, 34), "huge": (2, 34)}


@dataclass
class Case:
    name: str
    libc: str
    # Program and arguments; @NAME stands for the shared object of NAME.c.
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    through: list[str] = field(default_factory=list)
    # Shared objects that are preloaded before and after the library.
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    # "ok": the program's own verdict. "abort": one line of the library, then SIGABRT.
    expected: str = "ok"

    @property
    def is_sampled(self) -> bool:
        return bool(SAMPLE.search(self.name))

    def is_for(self, glibc: tuple[int, ...]) -> bool:
        return all(glibc >= SINCE.get(word, (0,)) for word in self.command)


def _methods(text: str, constants: dict[str, list[str]]) -> dict:
    """What the methods behind a line say: environment, wrapper, further arguments."""
    text = re.sub(r"rounds\(\d+\)\.to_string\(\)", '"1"', text)
    text = re.sub(r'scaled\(("[^"]*"), "[^"]*"\)', r"\1", text)
    text = text.replace("soak_seconds()", '"5"')
    text = re.sub(r'shared_object\("(\w+)", &\[\]\)', r'"@\1"', text)
    found: dict = {"arguments": [], "environment": {}, "through": []}
    for method, words in re.findall(r"\.(\w+)\(((?:[^()]|\([^()]*\))*)\)", text):
        strings = re.findall(STRING, words)
        if method in ("arg", "args"):
            if not strings:
                raise ValueError(f"cases.rs has an argument that ci/hosts does not know: {words}")
            found["arguments"] += strings
        elif method == "env":
            found["environment"][strings[0]] = strings[1]
        elif method == "through":
            found["through"] = constants.get(words.strip()) or strings
        elif method != "limit":
            raise ValueError(f"cases.rs has a method that ci/hosts does not know: {method}")
    return found


def _listed(module: str, body: str) -> list[Case]:
    constants = {name: re.findall(STRING, words) for name, words in re.findall(r"const (\w+): \[&str; \d\] = \[(.*?)\];", body)}
    cases = []
    for name, flavour, command, methods in LINE.findall(re.sub(r"^ *//.*\n| *#\[.*\n", "", body, flags=re.MULTILINE)):
        if flavour in LIBCS:
            told = _methods(methods, constants)
            words = [*command.split(), *told["arguments"]]
            cases.append(Case(f"{module}::{name}", LIBCS[flavour], words, told["environment"], told["through"]))
    return cases


def _refused(body: str) -> list[Case]:
    return [
        Case(f"seccomp::{calls}_{error}_{moment}", "glibc", ["sandbox", "refused", calls, error, moment])
        for calls in re.findall(r'\brefused\("([^"]*)"\)', body)
        for error in ("EPERM", "ENOSYS")
        for moment in ("before", "late")
    ]


def _namespaces(body: str) -> list[Case]:
    return [
        Case(f"namespaces::{form}_{wait_ms}", "glibc", ["sandbox", "namespaces", form, wait_ms])
        for form in re.findall(r'at_all_moments\("([^"]*)"\)', body)
        for wait_ms in ("0", "100", "700", "1500", "5000")
    ]


def _misuse(body: str) -> list[Case]:
    forms = re.search(r"^    forms! \{(.*?)\}", body, re.MULTILINE | re.DOTALL)
    return [Case(f"misuse::{form}", "glibc", ["abuse", form], expected="abort") for form in forms.group(1).split()] if forms else []


def _loading() -> list[Case]:
    """What tests/preload/loading.rs has: objects that allocate before main, and plug-ins."""
    cases = []
    for now in ("", "_bound_now"):
        environment = {"LD_BIND_NOW": "1"} if now else {}
        early = {"libc": "glibc", "command": ["loading", "early"], "environment": environment}
        cases.append(Case(f"loading::constructor_before{now}", before=["early_library"], **early))
        cases.append(Case(f"loading::constructor_after{now}", after=["early_library"], **early))
        cases.append(Case(f"loading::resolver_in_the_program{now}", "glibc", ["ifunc"], environment))
    cases.append(Case("loading::plug_ins_come_and_go", "glibc", ["loading", "plug_ins", "@plugin"]))
    cases.append(Case("loading::plug_ins_lie_near", "glibc", ["loading", "near", "@plugin"]))
    return cases


def all_cases() -> list[Case]:
    text = (SUITE / "cases.rs").read_text()
    cases = [Case("interfaces::figures_are_true", "glibc", ["figures", "libc_figures"])]
    for module, body in re.findall(r"^mod (\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        cases += _listed(module, body) + _refused(body) + _namespaces(body) + _misuse(body)
    return cases + _loading()
