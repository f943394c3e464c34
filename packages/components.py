"""What a program consists of: the crates that are linked into it, Rust's standard library, and what is linked statically.

`cargo tree` names the crates (build scripts and macros are not in the program), `cargo metadata` describes them, and their
sources, which cargo has unpacked, hold the texts of their licences.
"""

from dataclasses import dataclass, field
import json
import os
from pathlib import Path
import re
import subprocess
import tomllib

ROOT = Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
LICENCE_FILE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)([-._].*)?", re.IGNORECASE)
# Debian's names of the architectures.
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
# Where the image is; also in crates/ebb-deploy/src/fix/desired.rs.
IMAGE = "ghcr.io/ebbmalloc/ebb"
PROGRAMS = ("ebbmalloc-cli", "ebbmalloc-c")


@dataclass(frozen=True, order=True)
class Component:
    name: str
    version: str
    licence: str  # an SPDX expression
    purl_type: str  # cargo, deb or generic
    sha256: str | None = None  # of the package in the registry
    texts: tuple[str, ...] = field(default=(), compare=False)


def run(*command) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def workspace() -> dict[str, str]:
    """What Cargo.toml says of all crates."""
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]


def version() -> str:
    return workspace()["version"]


def project() -> str:
    """Where the sources are."""
    return workspace()["repository"]


def texts(folder: Path) -> tuple[str, ...]:
    """The licences in the sources of a crate."""
    files = [path for path in folder.iterdir() if LICENCE_FILE.fullmatch(path.name)]
    for inner in [path for path in files if path.is_dir()]:
        files += inner.iterdir()
    return tuple(path.read_text() for path in sorted(files) if path.is_file() and path.suffix != ".rs")


def crates(target: str, programs=PROGRAMS) -> list[Component]:
    """The crates linked into `ebb` or the library, without those of this workspace."""
    used = set()
    for program in programs:
        tree = run(CARGO, "tree", "--quiet", "--locked", "--package", program, "--edges", "normal,no-proc-macro",
                   "--target", target, "--prefix", "none", "--format", "{p}")
        used |= {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    checksums = {
        (package["name"], package["version"]): package.get("checksum")
        for package in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    }
    metadata = json.loads(run(CARGO, "metadata", "--locked", "--format-version", "1", "--filter-platform", target))
    found = []
    for package in metadata["packages"]:
        name, number = package["name"], package["version"]
        if package["source"] is None or (name, f"v{number}") not in used:
            continue
        # The older form of an expression has a slash.
        licence = (package["license"] or "").replace("/", " OR ")
        folder = Path(package["manifest_path"]).parent
        found.append(Component(name, number, licence, "cargo", checksums[name, number], texts(folder)))
    return sorted(found)


def standard_library() -> Component:
    number = re.search(r"^release: (.*)$", run("rustc", "-vV"), re.MULTILINE)[1]
    documents = Path(run("rustc", "--print", "sysroot").strip()) / "share/doc/rust"
    files = [path for path in documents.glob("COPYRIGHT-library.html")]
    files += [documents / "licenses" / name for name in ("MIT.txt", "Apache-2.0.txt")]
    return Component("rust-std", number, "MIT OR Apache-2.0", "generic", None,
                     tuple(path.read_text() for path in files if path.is_file()))


def debian(package: str, licence: str) -> Component | None:
    """A static library of this machine; none where Debian's packages are not used."""
    copyright = Path("/usr/share/doc", package, "copyright")
    asked = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True)
    if asked.returncode or not copyright.is_file():
        return None
    return Component(package, asked.stdout, licence, "deb", None, (copyright.read_text(),))


def c_library(architecture: str, own: str) -> list[Component]:
    """What a static program has of glibc and gcc: Debian's packages, for another architecture the cross compiler's."""
    prefix, suffix = ("", "") if architecture == own else (f"{architecture}-linux-gnu-", f"-{DEBIAN[architecture]}-cross")
    compiler = run(f"{prefix}gcc", "-dumpversion").strip().partition(".")[0]
    found = [
        debian(f"libc6-dev{suffix}", "LGPL-2.1-or-later"),
        debian(f"libgcc-{compiler}-dev{suffix}", "GPL-3.0-or-later WITH GCC-exception-3.1"),
    ]
    return [component for component in found if component]


def licences(components: list[Component]) -> str:
    """One text: the table of components, then each licence once, with the names of those that come with it."""
    lines = ["Licences of what ebb and ebbmalloc contain", "=" * 42, ""]
    lines += [f"{one.name} {one.version}: {one.licence}" for one in components]
    users: dict[str, tuple[str, list[str]]] = {}
    for one in components:
        for text in one.texts:
            # Line breaks and indentation differ among copies of the same text.
            users.setdefault(" ".join(text.split()), (text, []))[1].append(f"{one.name} {one.version}")
    for text, names in users.values():
        lines += ["", "=" * 100, "Of " + ", ".join(dict.fromkeys(names)), "=" * 100, "", text.strip("\n").replace("\r", "")]
    return "\n".join(lines) + "\n"
