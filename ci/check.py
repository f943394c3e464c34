#!/usr/bin/env python3
"""Checks what changed against main: format, lint, unit tests of the changed crates and of those that depend on them.

    ci/check.py [BASE]      default: main, or HEAD where there is no main

Changes are those since the last common commit with BASE, and those that are not committed. Unit tests are those in `src`;
tests of whole programs are in `make test`. Property tests take a quarter of their cases.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")

# A change of these is a change of every crate.
SHARED = {"Cargo.toml", "Cargo.lock", ".cargo/config.toml", "clippy.toml"}


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout


def changed_files(base):
    if not base:
        has_main = subprocess.run(["git", "rev-parse", "--verify", "--quiet", "main"], cwd=ROOT, stdout=subprocess.DEVNULL)
        base = "main" if has_main.returncode == 0 else "HEAD"
    common = output("git", "merge-base", base, "HEAD").strip()
    return set((output("git", "diff", "--name-only", common) + output("git", "ls-files", "-o", "--exclude-standard")).split("\n")) - {""}


def changed_packages(files, packages):
    """Names of packages with a changed file; all if a shared file changed."""
    if files & SHARED:
        return {package["name"] for package in packages}
    folders = {package["name"]: os.path.relpath(os.path.dirname(package["manifest_path"]), ROOT) for package in packages}
    return {name for name, folder in folders.items() if any(file.startswith(folder + "/") for file in files)}


def with_dependents(names, packages):
    names = set(names)
    while more := {
        package["name"]
        for package in packages
        if package["name"] not in names and any(needed["name"] in names for needed in package["dependencies"])
    }:
        names |= more
    return names


def has_unit_tests(package):
    """Whether its library or program is built for tests."""
    return any(target["test"] and {"lib", "bin"} & set(target["kind"]) for target in package["targets"])


def run(*command, **environment):
    print("check:", " ".join(command), file=sys.stderr, flush=True)
    start = time.monotonic()
    status = subprocess.run(command, cwd=ROOT, env=os.environ | environment).returncode
    if status:
        sys.exit(f"check: {' '.join(command)} failed")
    print(f"check: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


def flags(names):
    return [word for name in sorted(names) for word in ("-p", name)]


def main():
    packages = json.loads(output(CARGO, "metadata", "--no-deps", "--format-version", "1"))["packages"]
    files = changed_files(sys.argv[1] if len(sys.argv) > 1 else None)
    changed = changed_packages(files, packages)
    affected = with_dependents(changed, packages)
    tested = {package["name"] for package in packages if package["name"] in affected and has_unit_tests(package)}
    print(f"check: {len(files)} files, crates: {' '.join(sorted(affected)) or 'none'}", file=sys.stderr)
    run(CARGO, "fmt", "--all", "--check")
    if affected:
        run(CARGO, "clippy", "--quiet", *flags(affected), *(["--all-targets"] if affected == changed else []), "--", "-D", "warnings")
        if affected != changed:
            run(CARGO, "clippy", "--quiet", *flags(changed), "--all-targets", "--", "-D", "warnings")
        run(CARGO, "test", "--quiet", "-p", "test-layers")
    if tested - {"test-layers"}:
        run(CARGO, "test", "--quiet", *flags(tested - {"test-layers"}), "--lib", "--bins", PROPTEST_CASES="64")
    if any(file.startswith("ci/") and file.endswith((".py", ".sh", ".txt")) for file in files):
        run(sys.executable, "-m", "unittest", "discover", "-s", "ci/tests")
    if any(file.startswith("packages/") for file in files):
        run(sys.executable, "-m", "unittest", "discover", "-s", "packages/tests", "-k", "Bytes", "-k", "Crates", "-k", "Release",
            "-k", "Kubernetes")


if __name__ == "__main__":
    main()
