#!/usr/bin/env python3
"""Packs what `make static` built into dist/: for each architecture

    ebbmalloc-VERSION-ARCH-linux.tar.gz         bin, lib, include and share, to be unpacked into /usr/local
    ebbmalloc-VERSION-ARCH-linux-debug.tar.gz   debug information, for the same place
    ebbmalloc-VERSION-ARCH-linux.cdx.json       CycloneDX
    ebbmalloc-VERSION-py3-none-....whl
    *.deb, *.rpm, *.apk                         packages of distributions

for all of them

    ebbmalloc-VERSION-image.tar                 OCI layout of an index and its images
    *.crate                                     as `cargo publish` uploads them
    ebbmalloc-VERSION-image.digest              of the index
    ebb-VERSION.tgz                             Helm chart and kustomization of the agent, rules, dashboards

and SHA256SUMS. The same commit and compiler give the same bytes; SOURCE_DATE_EPOCH is the commit's time.

    packages/dist.py [--built FOLDER] [--out FOLDER] [--quick] [ARCH]...

--quick   little compression, and neither crates nor packages of distributions
--built   FOLDER/ARCH has ebb, libebbmalloc.so, libjemalloc.so.2, libebbmalloc.a and share (these two are made if missing), debug
          files if there are any; default target/static
"""

import argparse
from hashlib import sha256
import os
from pathlib import Path
import platform
import shutil
import subprocess
import sys

import archive
import components
import crates
import images
import packer
import sbom
import system
import wheel

ROOT = components.ROOT
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# In dist/.
FILES = ("ebbmalloc-*", "ebb-*.tgz", "*.deb", "*.rpm", "*.apk", "*.crate")
DOCUMENTS = ("README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE")


def built_archive(arch: str) -> Path:
    """libebbmalloc.a without debug information, with the flags that ci/program.sh has for the library."""
    target = f"{arch}-unknown-linux-gnu"
    cargo_home = os.environ.get("CARGO_HOME", Path.home() / ".cargo")
    flags = f"--remap-path-prefix={ROOT}=/ebbmalloc --remap-path-prefix={cargo_home}=/cargo"
    if arch == "x86_64":
        flags += " -C llvm-args=-align-all-functions=6"
    environment = os.environ | {"RUSTFLAGS": f"{flags} -C link-arg=-Wl,--build-id=sha1"}
    command = [components.CARGO, "rustc", "--profile", "dist", "--package", "ebbmalloc-c", "--features", "archive",
               "--crate-type", "staticlib", "--target", target]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    prefix = "" if arch == platform.machine() else f"{arch}-linux-gnu-"
    stripped = TARGET / target / "dist/libebbmalloc.stripped.a"
    subprocess.run([f"{prefix}strip", "--strip-debug", "--enable-deterministic-archives", "-o", stripped,
                    stripped.with_name("libebbmalloc.a")], check=True)
    return stripped


def put(source: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, destination)


def stage(built: Path, arch: str, tree: Path, parts: list[components.Component]) -> None:
    """The files of an archive."""
    put(built / "ebb", tree / "bin/ebb")
    put(built / "libebbmalloc.so", tree / "lib/libebbmalloc.so")
    (tree / "lib" / system.SONAME).symlink_to("libebbmalloc.so")
    library = built / "libebbmalloc.a"
    put(library if library.exists() else built_archive(arch), tree / "lib/libebbmalloc.a")
    put(ROOT / "crates/ebbmalloc-c/include/ebbmalloc.h", tree / "include/ebbmalloc.h")
    documents = tree / "share/doc/ebbmalloc"
    for name in DOCUMENTS:
        put(ROOT / name, documents / name)
    (documents / "LICENSES.txt").write_text(components.licences(parts))
    (tree / "lib/pkgconfig").mkdir()
    (tree / "lib/pkgconfig/ebbmalloc.pc").write_text(
        system.PKG_CONFIG.format(prefix="${pcfiledir}/../..", libraries="lib", version=components.version()))
    if (built / "share").exists():
        shutil.copytree(built / "share", tree / "share", dirs_exist_ok=True)
    else:
        manual = [components.CARGO, "run", "--quiet", "--locked", "--package", "ebb-manual", "--", tree]
        subprocess.run(manual, cwd=ROOT, check=True)


def pack(built: Path, arch: str, out: Path, epoch: int, quick: bool) -> Path:
    """Everything of one architecture. The files of its archive."""
    level = 1 if quick else 9
    name = f"ebbmalloc-{components.version()}-{arch}-linux"
    tree = out / "tree" / name
    parts = sorted([*components.crates(f"{arch}-unknown-linux-gnu"), components.standard_library(),
                    *components.c_library(arch, platform.machine())])
    stage(built, arch, tree, parts)
    packed = out / f"{name}.tar.gz"
    archive.write(tree, packed, epoch, level)
    (out / f"{name}.cdx.json").write_text(sbom.bill(name, packed, parts, epoch))
    wheel.build(tree, out / "tree/wheel", out, epoch)
    if packer.can_build() and not quick:
        system.build(tree, built / system.JEMALLOC, arch, out, epoch)
    if (built / "ebb.debug").exists():
        debug = out / "tree" / f"{name}-debug"
        put(built / "ebb.debug", debug / "bin/ebb.debug")
        put(built / "libebbmalloc.so.debug", debug / "lib/libebbmalloc.so.debug")
        put(built / f"{system.JEMALLOC}.debug", debug / f"lib/ebbmalloc/{system.JEMALLOC}.debug")
        archive.write(debug, out / f"{name}-debug.tar.gz", epoch, level)
    return tree


def chart(out: Path, epoch: int) -> None:
    """packages/kubernetes as `helm package` names it, without what only its tests need."""
    folder = out / "tree/ebb"
    shutil.copytree(ROOT / "packages/kubernetes", folder, ignore=shutil.ignore_patterns("*.py", "*-test.yaml", "__pycache__"))
    archive.write(folder, out / f"ebb-{components.version()}.tgz", epoch)


def made(out: Path) -> list[Path]:
    """What a run of this script leaves in dist/, besides the sums."""
    return sorted({path for pattern in FILES for path in out.glob(pattern)})


def main() -> None:
    parser = argparse.ArgumentParser(usage="packages/dist.py [--built FOLDER] [--out FOLDER] [--quick] [ARCH]...")
    parser.add_argument("--built", type=Path, default=TARGET / "static")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("arch", nargs="*", default=["x86_64", "aarch64"])
    arguments = parser.parse_args()
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or components.run("git", "log", "-1", "--format=%ct"))
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    for old in [*made(out), *out.glob("SHA256SUMS")]:
        old.unlink()
    shutil.rmtree(out / "tree", ignore_errors=True)
    trees = {arch: pack(arguments.built / arch, arch, out, epoch, arguments.quick) for arch in arguments.arch}
    images.build(trees, out, epoch, 1 if arguments.quick else 9)
    chart(out, epoch)
    shutil.rmtree(out / "tree")
    if not arguments.quick:
        for crate in crates.pack(crates.published()):
            shutil.copy(crate, out)
    sums = "".join(f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made(out))
    (out / "SHA256SUMS").write_text(sums)
    print(sums, end="")
    if not (packer.can_build() or arguments.quick):
        print("dist.py: no .deb, .rpm and .apk: Go 1.25 or later, which builds nfpm, is missing", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    main()
