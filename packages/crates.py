#!/usr/bin/env python3
"""Packs the crates that are published, unpacks each outside of the checkout, and tests it there with the others in place of
those of crates.io. The program is installed, too.

    packages/crates.py [--list | --oldest] [CRATE]...

--list     only prints their names, each after those that it needs
--oldest   compiles them with the oldest Rust that Cargo.toml promises, and runs nothing

Without that Rust it says so and ends with status 3. Builds are kept in target/crates.
"""

import argparse
from graphlib import TopologicalSorter
import json
import os
from pathlib import Path
import subprocess
import sys
import tarfile
from tempfile import TemporaryDirectory

import components

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", components.ROOT / "target")).resolve()


def published() -> dict[str, dict]:
    """The packages as cargo describes them, each after those that it needs."""
    metadata = json.loads(components.run(components.CARGO, "metadata", "--no-deps", "--format-version", "1"))
    found = {package["name"]: package for package in metadata["packages"] if package["publish"] != []}
    needs = {name: {part["name"] for part in found[name]["dependencies"]} & {*found} for name in sorted(found)}
    return {name: found[name] for name in TopologicalSorter(needs).static_order()}


def pack(packages: dict[str, dict]) -> list[Path]:
    """What `cargo publish` would upload."""
    options = [option for name in packages for option in ("--package", name)]
    components.run(components.CARGO, "package", "--quiet", "--locked", "--allow-dirty", "--no-verify", "--target-dir", TARGET, *options)
    return [TARGET / "package" / f"{name}-{package['version']}.crate" for name, package in packages.items()]


def needed(name: str, packages: dict[str, dict]) -> set[str]:
    """The published crates that it depends on, through others, too."""
    direct = {part["name"] for part in packages[name]["dependencies"]} & {*packages}
    return direct.union(*(needed(other, packages) for other in direct))


class Unpacked:
    """The crates below one folder."""

    def __init__(self, folder: Path, packages: dict[str, dict]):
        self.folder, self.packages = folder, packages
        for file in pack(packages):
            with tarfile.open(file) as crate:
                crate.extractall(folder, filter="data")

    def place(self, name: str) -> Path:
        return self.folder / f"{name}-{self.packages[name]['version']}"

    def cargo(self, name: str, verb: str, *options, **environment) -> bool:
        patches = [f'--config=patch.crates-io.{other}.path="{self.place(other)}"' for other in sorted(needed(name, self.packages))]
        command = [components.CARGO, verb, "--quiet", *options]
        print(f"crates: {name}: {' '.join(map(str, command))}", flush=True)
        environment = os.environ | {"CARGO_TARGET_DIR": str(TARGET / "crates"), "CARGO_PROFILE_DEV_DEBUG": "line-tables-only"} | environment
        return subprocess.run([*command, *patches], cwd=self.place(name), env=environment).returncode == 0

    def tested(self, name: str) -> bool:
        """With its default features, and with those that docs.rs documents."""
        metadata = self.packages[name]["metadata"] or {}
        features = metadata.get("docs", {}).get("rs", {}).get("features", [])
        choices = [[], ["--features", ",".join(features)]] if features else [[]]
        return all(self.cargo(name, "test", *choice) for choice in choices) and self.installed(name)

    def installed(self, name: str) -> bool:
        programs = [target["name"] for target in self.packages[name]["targets"] if "bin" in target["kind"]]
        if not programs:
            return True
        root = self.folder / "installed"
        return self.cargo(name, "install", "--debug", "--path", ".", "--root", root) and all(
            subprocess.run([root / "bin" / program, "--version"]).returncode == 0 for program in programs)


def main() -> None:
    parser = argparse.ArgumentParser(usage="packages/crates.py [--list | --oldest] [CRATE]...")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--oldest", action="store_true")
    parser.add_argument("crate", nargs="*")
    arguments = parser.parse_args()
    packages = published()
    if unknown := {*arguments.crate} - {*packages}:
        sys.exit(f"crates.py: not published: {', '.join(sorted(unknown))}")
    if arguments.list:
        print("\n".join(packages))
        return
    names = arguments.crate or [*packages]
    # Links would lead cargo's patches to another path than the one it works in.
    with TemporaryDirectory(prefix="crates-") as folder:
        unpacked = Unpacked(Path(folder).resolve(), packages)
        if arguments.oldest:
            oldest = packages[names[0]]["rust_version"]
            toolchain = ["rustup", "run", oldest, "rustc", "--version"]
            try:
                subprocess.run(toolchain, check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                print(f"crates.py: no Rust {oldest}: rustup toolchain install {oldest} --profile minimal", file=sys.stderr)
                sys.exit(3)
            failed = [name for name in names if not unpacked.cargo(name, "check", RUSTUP_TOOLCHAIN=oldest)]
        else:
            failed = [name for name in names if not unpacked.tested(name)]
    if failed:
        sys.exit(f"crates.py: failed: {', '.join(failed)}")
    print(f"crates: {len(names)} passed")


if __name__ == "__main__":
    main()
