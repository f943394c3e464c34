"""What needs no dist/: the bytes of an archive, the tags of a wheel, the text of licences."""

import gzip
from hashlib import sha256
import os
from pathlib import Path
import tempfile
import unittest

from made import layout

import archive
import components
import images
import wheel


class Bytes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def packed(self, name: str, files: list[str], time: int) -> bytes:
        tree = self.folder / name / "tree"
        for file in files:
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            (tree / file).write_text(file)
            os.utime(tree / file, (time, time))
        (tree / "bin/program").chmod(0o700 if time > 5 else 0o755)
        archive.write(tree, self.folder / f"{name}.tar.gz", 1_700_000_000)
        return (self.folder / f"{name}.tar.gz").read_bytes()

    def test_an_archive_depends_on_names_and_contents_alone(self):
        files = ["bin/program", "lib/b", "lib/a"]
        first = self.packed("first", files, 1)
        self.assertEqual(first, self.packed("second", files[::-1], 10))
        self.assertNotEqual(first, self.packed("third", ["bin/program", "lib/a"], 1))

    def test_a_program_that_needs_glibc_is_none_for_musl(self):
        self.assertRegex(wheel.platforms([Path("/bin/sh").resolve()]), r"^manylinux_2_\d+_\w+$")

    def test_a_licence_stands_once_whatever_its_line_breaks(self):
        one = components.Component("one", "1.0", "MIT", "cargo", None, ("Permission is\nhereby granted",))
        other = components.Component("other", "2.0", "MIT", "cargo", None, ("Permission is hereby\r\n  granted\n", "More"))
        text = components.licences([one, other])
        self.assertEqual(text.count("Permission"), 1)
        self.assertIn("Of one 1.0, other 2.0\n", text)
        self.assertIn("Of other 2.0\n", text)

    def test_each_linked_crate_has_a_licence_and_macros_are_none(self):
        found = components.crates("x86_64-unknown-linux-gnu")
        self.assertEqual([part.name for part in found if not (part.licence and part.texts and part.sha256)], [])
        names = {part.name for part in found}
        self.assertLessEqual({"clap", "serde", "gimli"}, names)
        self.assertFalse(names & {"clap_derive", "serde_derive", "proptest", "tempfile-derive"})

    def test_an_image_depends_on_contents_alone_and_is_what_its_digests_say(self):
        trees = {}
        for arch in ("x86_64", "aarch64"):
            trees[arch] = self.folder / arch
            for file in images.FILES.values():
                (trees[arch] / file).parent.mkdir(parents=True, exist_ok=True)
                (trees[arch] / file).write_text(f"{arch} {file}")
        first = images.build(trees, self.folder, 1_700_000_000)
        [written] = self.folder.glob("*-image.tar")
        before = written.read_bytes()
        os.utime(trees["x86_64"] / "bin/ebb", (1, 1))
        self.assertEqual(images.build(trees, self.folder, 1_700_000_000), first)
        self.assertEqual(written.read_bytes(), before)
        blobs, index = layout(written)
        self.assertEqual([one["digest"] for one in index["manifests"]], [first])
        for image in blobs[first]["manifests"]:
            manifest = blobs[image["digest"]]
            config, [layer] = blobs[manifest["config"]["digest"]], manifest["layers"]
            tar = gzip.decompress(blobs[layer["digest"]])
            self.assertEqual(config["rootfs"]["diff_ids"], [f"sha256:{sha256(tar).hexdigest()}"])
            self.assertEqual(layer["size"], len(blobs[layer["digest"]]))
        (trees["aarch64"] / "bin/ebb").write_text("other")
        self.assertNotEqual(images.build(trees, self.folder, 1_700_000_000), first)
