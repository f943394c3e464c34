"""The packages of distributions, by nfpm: .deb, .rpm and .apk of one architecture, from the tree of the archive.

As each distribution divides them: the tool, the library, what developers need, and the library under jemalloc's name. The
latter lies in a folder that no loader searches by itself, so that it neither hides nor conflicts with jemalloc.

    packages/system.py [--version VERSION] [--epoch SECONDS] TREE COMPAT ARCH OUT

makes the packages of another version, to try upgrades. COMPAT is a libjemalloc.so.2.
"""

import argparse
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import format_datetime
import json
from pathlib import Path
import tempfile

import components
import packer
from packer import Contents, packed

MAINTAINER = "The ebbmalloc contributors <ebbmalloc@users.noreply.github.com>"
SONAME = "libebbmalloc.so.0"
JEMALLOC = "libjemalloc.so.2"


@dataclass(frozen=True)
class Format:
    """What a distribution's policy says. {triplet} is Debian's name of the architecture's libraries."""
    name: str
    release: str
    compression: str | None
    architectures: dict[str, str]
    libraries: str
    zsh: str
    tool: str = "ebb"
    library: str = "ebbmalloc"
    development: str = "ebbmalloc-devel"
    compat: str = "ebbmalloc-jemalloc-compat"


FORMATS = (
    Format("deb", "1", "xz", components.DEBIAN, "usr/lib/{triplet}", "usr/share/zsh/vendor-completions",
           library="libebbmalloc0", development="libebbmalloc-dev"),
    Format("rpm", "1", "xz", {"x86_64": "x86_64", "aarch64": "aarch64"}, "usr/lib64", "usr/share/zsh/site-functions"),
    Format("apk", "r0", None, {"x86_64": "x86_64", "aarch64": "aarch64"}, "usr/lib", "usr/share/zsh/site-functions",
           development="ebbmalloc-dev"),
)

TEXTS = {
    "tool": ("utils", "shows and changes how much memory a service holds", """
ebb tells whether the memory of a running process is live, freed but held
by its allocator, or neither; measures under the service's own load how
much another allocator would save; and starts services on one.

It is one static program, which carries the ebbmalloc library."""),
    "library": ("libs", "memory allocator that gives memory back by itself", """
ebbmalloc replaces malloc in long-running services. After a burst it
returns idle pages to the kernel within seconds, without a setting or a
call.

Programs take it by LD_PRELOAD, by "ebb run", or linked."""),
    "development": ("libdevel", "memory allocator that gives memory back by itself (development files)", """
ebbmalloc replaces malloc in long-running services.

This package has the header, the static library and the file for pkg-config."""),
    "compat": ("libs", "ebbmalloc under the name of libjemalloc.so.2", """
Programs that are linked to jemalloc run on ebbmalloc if their loader
finds this library first.

It lies in a folder of its own: LD_LIBRARY_PATH or a line in
/etc/ld.so.conf.d switches to it."""),
}

README_DEBIAN = """ebbmalloc for programs that are linked to jemalloc
--------------------------------------------------

For one service, in its environment:

    LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/ebbmalloc

For the whole machine:

    echo /usr/lib/x86_64-linux-gnu/ebbmalloc > /etc/ld.so.conf.d/00-ebbmalloc.conf && ldconfig

On arm64 the folder is /usr/lib/aarch64-linux-gnu/ebbmalloc. Remove the file and run ldconfig again before you remove the
package.
"""

COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ebbmalloc
Source: {project}
Comment: The licences of the libraries that are linked in are in licenses.txt.gz.

Files: *
Copyright: 2026 The ebbmalloc contributors
License: MIT or Apache-2.0

License: MIT
{mit}

License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
"""

# Shared with the archive, which may lie anywhere.
PKG_CONFIG = """prefix={prefix}
libdir=${{prefix}}/{libraries}
includedir=${{prefix}}/include

Name: ebbmalloc
Description: A memory allocator that gives memory back by itself
Version: {version}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -lebbmalloc
Libs.private: -pthread
"""


@dataclass(frozen=True)
class Packages:
    """Of one format and architecture."""
    format: Format
    arch: str
    tree: Path
    compat: Path
    version: str
    epoch: int
    stage: Path

    @property
    def libraries(self) -> str:
        return self.format.libraries.format(triplet=f"{self.arch}-linux-gnu")

    @property
    def full_version(self) -> str:
        return f"{self.version.replace('-', '~', 1)}-{self.format.release}"

    @property
    def library_mode(self) -> int:
        """Debian's policy wants libraries that are not executable; rpm's tools want executable ones."""
        return 0o644 if self.format.name == "deb" else 0o755

    def tool(self, to: Contents) -> dict:
        to.file("usr/bin/ebb", self.tree / "bin/ebb", 0o755)
        share = self.tree / "share"
        for page in sorted((share / "man/man1").iterdir()):
            to.file(f"usr/share/man/man1/{page.name}.gz", packed(page.read_bytes()), kind="doc" if self.format.name == "rpm" else "file")
        to.file("usr/share/bash-completion/completions/ebb", share / "bash-completion/completions/ebb")
        to.file("usr/share/fish/vendor_completions.d/ebb.fish", share / "fish/vendor_completions.d/ebb.fish")
        to.file(f"{self.format.zsh}/_ebb", share / "zsh/site-functions/_ebb")
        if self.format.name == "deb":
            to.file("usr/share/lintian/overrides/ebb",
                    "# It reads processes of every userland, and runs in roots without a C library.\nebb: statically-linked-binary\n")
        return {"suggests": [self.format.library]}

    def library(self, to: Contents) -> dict:
        to.file(f"{self.libraries}/{SONAME}", self.tree / "lib/libebbmalloc.so", self.library_mode)
        return {
            "rpm": {"provides": [f"{SONAME}()(64bit)"]},
            "apk": {"provides": [f"so:{SONAME}=0"]},
            "deb": {"deb": {"triggers": {"activate_noawait": ["ldconfig"]}, "fields": {"Multi-Arch": "same"}}},
        }[self.format.name]

    def development(self, to: Contents) -> dict:
        to.file("usr/include/ebbmalloc.h", self.tree / "include/ebbmalloc.h")
        to.file(f"{self.libraries}/libebbmalloc.a", self.tree / "lib/libebbmalloc.a")
        to.link(f"{self.libraries}/libebbmalloc.so", SONAME)
        to.file(f"{self.libraries}/pkgconfig/ebbmalloc.pc",
                PKG_CONFIG.format(prefix="/usr", libraries=self.libraries.removeprefix("usr/"), version=self.version))
        same = {
            "deb": f"{self.format.library} (= {self.full_version})",
            "rpm": f"{self.format.library} = {self.full_version}",
            "apk": f"{self.format.library}={self.full_version.replace('~', '_')}",
        }[self.format.name]
        described = [f"pkgconfig(ebbmalloc) = {self.version}"] if self.format.name == "rpm" else []
        return {"depends": [same], "provides": described, "deb": {"fields": {"Multi-Arch": "same"}}}

    def jemalloc(self, to: Contents) -> dict:
        folder = f"{self.libraries}/ebbmalloc"
        if self.format.name == "rpm":
            to.folder_of_its_own(folder)
        to.file(f"{folder}/{JEMALLOC}", self.compat, self.library_mode)
        if self.format.name == "deb":
            to.file(f"usr/share/doc/{self.format.compat}/README.Debian", README_DEBIAN)
        return {"deb": {"fields": {"Multi-Arch": "same"}}}

    def documents(self, name: str, to: Contents, licences: str) -> None:
        texts = [components.ROOT / f"LICENSE-{one}" for one in ("MIT", "APACHE")]
        if self.format.name != "deb":
            folder = f"usr/share/licenses/{name}"
            if self.format.name == "rpm":
                to.folder_of_its_own(folder)
            kind = "license" if self.format.name == "rpm" else "file"
            for path in texts:
                to.file(f"{folder}/{path.name}", path, kind=kind)
            to.file(f"{folder}/LICENSES.txt", licences, kind=kind)
            return
        folder = f"usr/share/doc/{name}"
        date = format_datetime(datetime.fromtimestamp(self.epoch, timezone.utc))
        to.file(f"{folder}/copyright", COPYRIGHT.format(project=components.project(), mit=packer.indented(texts[0].read_text())))
        to.file(f"{folder}/licenses.txt.gz", packed(licences))
        to.file(f"{folder}/changelog.gz", packed((components.ROOT / "CHANGELOG.md").read_bytes()))
        to.file(f"{folder}/changelog.Debian.gz", packed(
            f"{name} ({self.full_version}) unstable; urgency=medium\n\n  * Release {self.version}.\n\n -- {MAINTAINER}  {date}\n"))

    def rpm_changelog(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        date = datetime.fromtimestamp(self.epoch, timezone.utc).isoformat()
        entry = {"semver": self.full_version, "date": date, "packager": MAINTAINER, "changes": [{"note": f"Release {self.version}."}]}
        file = folder / "changelog.yaml"
        file.write_text(json.dumps([entry]))
        return file.resolve()

    def build(self, part: str, fill, licences: str, out: Path) -> Path:
        name = getattr(self.format, part)
        section, summary, text = TEXTS[part]
        contents = Contents(self.stage / self.format.name / name)
        settings = {
            "name": name, "arch": self.format.architectures[self.arch], "platform": "linux",
            "version": self.version, "release": self.format.release, "maintainer": MAINTAINER, "homepage": components.project(),
            "section": section, "priority": "optional", "umask": 0o022, "disable_globbing": True,
            "description": {"deb": f"{summary}{text}", "rpm": text.strip(), "apk": summary}[self.format.name],
            # Debian has it in the file `copyright`.
            "license": "" if self.format.name == "deb" else "MIT OR Apache-2.0",
        }
        special = {"deb": {"compression": "xz"}, "rpm": {"compression": "xz", "buildhost": "localhost", "summary": summary}}
        more = fill(contents)
        if self.format.name == "rpm":
            settings["changelog"] = str(self.rpm_changelog(contents.folder))
        if self.format.name in special:
            settings[self.format.name] = special[self.format.name] | more.pop(self.format.name, {})
        more.pop("deb", None)
        self.documents(name, contents, licences)
        file = contents.folder / "nfpm.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings | more | {"contents": contents.entries}))
        target = out / self.file_name(name)
        packer.run("package", "--config", file.resolve(), "--packager", self.format.name, "--target", target.resolve(), epoch=self.epoch)
        if self.format.name == "deb" and part == "library":
            packer.add_control_file(target, "shlibs", f"libebbmalloc 0 {name} (>= {self.version.replace('-', '~', 1)})\n".encode(), self.epoch)
        return target

    def file_name(self, name: str) -> str:
        arch = self.format.architectures[self.arch]
        return {
            "deb": f"{name}_{self.full_version}_{arch}.deb",
            "rpm": f"{name}-{self.full_version}.{arch}.rpm",
            "apk": f"{name}-{self.full_version.replace('~', '_')}.{arch}.apk",
        }[self.format.name]


def build(tree: Path, compat: Path, arch: str, out: Path, epoch: int, version: str | None = None) -> list[Path]:
    target = f"{arch}-unknown-linux-gnu"
    of_library = components.licences(sorted([*components.crates(target, ("ebbmalloc-c",)), components.standard_library()]))
    of_tool = (tree / "share/doc/ebbmalloc/LICENSES.txt").read_text()
    with tempfile.TemporaryDirectory() as stage:
        made = []
        for form in FORMATS:
            packages = Packages(form, arch, tree, compat, version or components.version(), epoch, Path(stage))
            made += [
                packages.build("tool", packages.tool, of_tool, out),
                packages.build("library", packages.library, of_library, out),
                packages.build("development", packages.development, of_library, out),
                packages.build("compat", packages.jemalloc, of_library, out),
            ]
        return made


def main() -> None:
    parser = argparse.ArgumentParser(usage="packages/system.py [--version VERSION] [--epoch SECONDS] TREE COMPAT ARCH OUT")
    parser.add_argument("--version")
    parser.add_argument("--epoch", type=int, default=0)
    parser.add_argument("tree", type=Path)
    parser.add_argument("compat", type=Path)
    parser.add_argument("arch")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for package in build(given.tree, given.compat, given.arch, given.out, given.epoch, given.version):
        print(package)


if __name__ == "__main__":
    main()
