"""The .apk packages, against the format of apk-tools 2: gzip streams one after another, `.PKGINFO`, sums in the headers."""

from hashlib import sha1, sha256
import io
from pathlib import Path
import tarfile
import unittest
import zlib

from made import DIST, one
import debian

import components  # of packages/, as system
import system

NAMES = ("ebb", "ebbmalloc", "ebbmalloc-dev", "ebbmalloc-jemalloc-compat")


def streams(file: Path) -> list[tuple[bytes, bytes]]:
    """Each gzip stream, as it is and unpacked."""
    found, rest = [], file.read_bytes()
    while rest:
        inflater = zlib.decompressobj(wbits=31)
        text = inflater.decompress(rest) + inflater.flush()
        found.append((rest[:len(rest) - len(inflater.unused_data)], text))
        rest = inflater.unused_data
    return found


def members(text: bytes) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(text)) as archive:
        return {entry.name: (entry, archive.extractfile(entry).read() if entry.isfile() else b"") for entry in archive}


class Apk(unittest.TestCase):
    def packages(self):
        one("SHA256SUMS")
        found = [(name, arch, path) for name in NAMES for arch in debian.DEBIAN
                 if (path := DIST / f"{name}-{components.version()}-r0.{arch}.apk").exists()]
        if not found:
            self.skipTest(f"{DIST} has no .apk: make dist")
        return found

    def fields(self, control: bytes) -> dict[str, list[str]]:
        fields: dict[str, list[str]] = {}
        for line in members(control)[".PKGINFO"][1].decode().splitlines():
            name, _, value = line.partition(" = ")
            fields.setdefault(name, []).append(value)
        return fields

    def test_control_comes_before_data_and_has_its_sum(self):
        for name, arch, path in self.packages():
            with self.subTest(path.name):
                (_, control), (packed, data) = streams(path)
                fields = self.fields(control)
                self.assertEqual(fields["pkgname"], [name])
                self.assertEqual(fields["pkgver"], [f"{components.version()}-r0"])
                self.assertEqual(fields["arch"], [arch])
                self.assertEqual(fields["license"], ["MIT OR Apache-2.0"])
                self.assertEqual(fields["datahash"], [sha256(packed).hexdigest()])
                self.assertEqual(fields["size"], [str(sum(len(text) for _, text in members(data).values()))])
                # The parts are one archive: only the last one has an end.
                self.assertFalse(control.endswith(bytes(1024)))
                self.assertTrue(data.endswith(bytes(1024)))

    def test_each_file_has_its_sum(self):
        for _, _, path in self.packages():
            with self.subTest(path.name):
                for name, (entry, text) in members(streams(path)[1][1]).items():
                    if entry.isfile():
                        self.assertEqual(entry.pax_headers["APK-TOOLS.checksum.SHA1"], sha1(text).hexdigest(), name)
                    self.assertEqual((entry.uname, entry.gname), ("root", "root") if not entry.issym() else ("", ""))

    def test_the_files_are_where_alpine_has_them(self):
        wanted = {
            "ebb": ("usr/bin/ebb", "usr/share/man/man1/ebb-why.1.gz", "usr/share/zsh/site-functions/_ebb"),
            "ebbmalloc": (f"usr/lib/{system.SONAME}", "usr/share/licenses/ebbmalloc/LICENSE-MIT"),
            "ebbmalloc-dev": ("usr/lib/libebbmalloc.so", "usr/lib/libebbmalloc.a", "usr/include/ebbmalloc.h"),
            "ebbmalloc-jemalloc-compat": (f"usr/lib/ebbmalloc/{system.JEMALLOC}",),
        }
        for name, _, path in self.packages():
            found = members(streams(path)[1][1])
            self.assertEqual([file for file in wanted[name] if file not in found], [])

    def test_dependencies(self):
        for name, _, path in self.packages():
            fields = self.fields(streams(path)[0][1])
            self.assertEqual(fields.get("depend"), [f"ebbmalloc={components.version()}-r0"] if name == "ebbmalloc-dev" else None)
            self.assertEqual(fields.get("provides"), [f"so:{system.SONAME}=0"] if name == "ebbmalloc" else None)
