#!/usr/bin/env python3
"""Makes a release of a clean main: a commit that sets the version and dates the changelog, everything in dist/, and a tag.

    packages/release.py [--no-dist] VERSION

It uploads nothing: it prints the commands for that, in order. After a failure the tree is as it was before.

--no-dist   leaves dist/ out
"""

import argparse
from datetime import datetime, timezone
import json
from pathlib import Path
import re
import shutil
import signal
import subprocess
import sys

import components
import crates

ROOT = components.ROOT
CHANGELOG = ROOT / "CHANGELOG.md"
MANIFEST = ROOT / "Cargo.toml"
DIST = ROOT / "dist"
# Other files that name the version, and what stands before it.
NAMED = {"packages/kubernetes/Chart.yaml": "(?:version|appVersion): ", "packages/kubernetes/kustomization.yaml": " +newTag: "}
UNRELEASED = "## Unreleased\n"


class Refusal(Exception):
    """One line for the user."""


def git(*arguments, **options) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, **options)
    if done.returncode:
        raise Refusal(f"git {arguments[0]}: {' '.join(done.stderr.split())}")
    return done.stdout.strip()


def number(version: str) -> tuple[int, ...] | None:
    """None for what is no version."""
    matched = re.fullmatch(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", version)
    return tuple(map(int, matched.groups())) if matched else None


def unreleased(changelog: str) -> str:
    """The entries of the section with this name."""
    _, found, after = changelog.partition(f"\n{UNRELEASED}")
    entries = re.split(r"^## ", after, maxsplit=1, flags=re.MULTILINE)[0].strip() if found else ""
    return entries if re.search(r"^[-*] ", entries, re.MULTILINE) else ""


def check(version: str) -> None:
    """Refuses what cannot be released."""
    present = components.version()
    if not version:
        raise Refusal(f"no version: make release VERSION={present}")
    if not number(version):
        raise Refusal(f"VERSION={version} is not of the form 1.2.3")
    tags = [tag for tag in git("tag", "--list", "v*").split() if number(tag[1:])]
    newest = max(tags, key=lambda tag: number(tag[1:]), default=None)
    if newest and number(version) <= number(newest[1:]):
        raise Refusal(f"VERSION={version} is not higher than {newest}, the newest release")
    if number(version) < number(present):
        raise Refusal(f"VERSION={version} is lower than {present}, the version in Cargo.toml")
    branch = git("branch", "--show-current")
    if branch != "main":
        raise Refusal(f"{branch or 'no branch'} is checked out: git switch main")
    if changed := git("status", "--porcelain").splitlines():
        raise Refusal(f"the tree is not clean: {changed[0].split(maxsplit=1)[1]}{' and others' if changed[1:] else ''}")
    if not unreleased(CHANGELOG.read_text()):
        raise Refusal("CHANGELOG.md has no entries under Unreleased")


def replaced(file: Path, pattern: str, replacement: str) -> None:
    text = file.read_text()
    changed, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
    if not count:
        raise Refusal(f"{file.relative_to(ROOT)} has no {pattern}")
    file.write_text(changed)


def set_version(version: str) -> None:
    """In Cargo.toml, from which man pages, wheels and archives have it, in the locks of all workspaces, and in the chart."""
    present = re.escape(components.version())
    replaced(MANIFEST, rf'^(version = "|[\w-]+ = \{{ version = "=){present}"', rf'\g<1>{version}"')
    for name, before in NAMED.items():
        replaced(ROOT / name, f"^({before}){present}$", rf"\g<1>{version}")
    metadata = json.loads(components.run(components.CARGO, "metadata", "--no-deps", "--format-version", "1"))
    if other := [package["name"] for package in metadata["packages"] if package["version"] != version]:
        raise Refusal(f"{', '.join(other)}: not of the workspace's version")
    names = "|".join(package["name"] for package in metadata["packages"])
    for lock in git("ls-files", "Cargo.lock", "*/Cargo.lock").split():
        # What is from a registry has a line `source`.
        own = rf'^(name = "(?:{names})"\nversion = "){present}"$(?!\nsource)'
        (ROOT / lock).write_text(re.sub(own, rf'\g<1>{version}"', (ROOT / lock).read_text(), flags=re.MULTILINE))
    components.run(components.CARGO, "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu")


def set_date(version: str) -> None:
    date = datetime.now(timezone.utc).date()
    text = CHANGELOG.read_text()
    CHANGELOG.write_text(text.replace(f"\n{UNRELEASED}", f"\n{UNRELEASED}\n## {version} ({date})\n", 1))


def tag(version: str, entries: str) -> None:
    """It carries the entries; signed where git has a key."""
    links = entries.replace("](docs/", f"]({components.project()}/blob/v{version}/docs/")
    signed = subprocess.run(["git", "config", "user.signingkey"], cwd=ROOT, stdout=subprocess.DEVNULL).returncode == 0
    git("tag", "--sign" if signed else "--annotate", "--cleanup=verbatim", "--file=-", f"v{version}",
        input=f"ebbmalloc {version}\n\n{links}\n")


def make_dist() -> None:
    status = subprocess.run(["make", "dist"], cwd=ROOT).returncode
    if status:
        raise Refusal(f"make dist ended with status {status}")


def release(version: str, with_dist: bool) -> None:
    entries = unreleased(CHANGELOG.read_text())
    before = git("rev-parse", "HEAD")
    try:
        set_version(version)
        set_date(version)
        git("commit", "--quiet", "--all", "--message", f"Release {version}")
    except BaseException:
        # The tree was clean, so all that differs is from here.
        git("reset", "--quiet", "--hard", before)
        raise
    made = git("rev-parse", "HEAD")
    try:
        tag(version, entries)
        if with_dist:
            make_dist()
    except BaseException:
        undo(version, before, made)
        if with_dist:
            shutil.rmtree(DIST, ignore_errors=True)
        raise


def undo(version: str, before: str, made: str) -> None:
    """A commit that was added since stays, and so does what was edited."""
    if git("tag", "--list", f"v{version}"):
        git("tag", "--delete", f"v{version}")
    if git("rev-parse", "HEAD") == made:
        git("reset", "--quiet", "--keep", before)


def tests() -> str:
    """What the log of `make test-long` says of the commit that is released."""
    log = crates.TARGET / "test-long.log"
    text = log.read_text() if log.exists() else ""
    commit = re.search(r"^commit +(?:.*-g)?(\w+)$", text, re.MULTILINE)
    result = re.search(r"^\d+ steps failed$", text, re.MULTILINE)
    if commit and result and git("rev-parse", "HEAD").startswith(commit[1]):
        return f"make test-long: {result[0]}, {text.count('SKIPPED: ')} skipped (target/test-long.log)"
    return "make test-long has not run on this commit; before the upload: EBB_REQUIRE_ALL=1 INSTALL=1 make test test-long"


def uploads(version: str) -> list[str]:
    lines = [f"git push --atomic origin main v{version}"]
    lines += [f"cargo publish --locked --package {name}" for name in crates.published()]
    lines.append(f"twine upload dist/ebbmalloc-{version}-*.whl")
    lines.append(f"gh release create v{version} --verify-tag --notes-from-tag dist/*")
    lines += [f"skopeo copy --all --preserve-digests oci-archive:{image.relative_to(ROOT)} docker://{components.IMAGE}:{version}"
              for image in DIST.glob(f"ebbmalloc-{version}-image.tar")]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(usage="packages/release.py [--no-dist] VERSION")
    parser.add_argument("--no-dist", action="store_true")
    parser.add_argument("version", nargs="?", default="")
    arguments = parser.parse_args()
    version = arguments.version
    # An end by a signal undoes what was done, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        check(version)
        print(f"release: {tests()}", flush=True)
        release(version, not arguments.no_dist)
    except (Refusal, subprocess.CalledProcessError, KeyboardInterrupt) as error:
        sys.exit(f"release: {error or 'interrupted'}")
    print(f"release: v{version} is tagged; nothing was uploaded. Upload it, each line after the one before it succeeded:\n")
    print("\n".join(f"    {line}" for line in uploads(version)))


if __name__ == "__main__":
    main()
