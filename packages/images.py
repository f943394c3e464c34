"""An OCI image from scratch for each architecture, and an index of them, as one layout in a tar archive.

    /usr/bin/ebb                                the entry point
    /usr/local/lib/libebbmalloc.so              where `ebb fix` copies it from and to
    /usr/local/include/ebbmalloc.h
    /usr/share/doc/ebbmalloc                    licences

The digest of the index follows from the files and the commit's time; COPY --from=IMAGE@DIGEST takes the builder's
architecture from it. `skopeo copy --all --preserve-digests oci-archive:FILE docker://IMAGE:VERSION` uploads it.
"""

from datetime import datetime, timezone
import gzip
from hashlib import sha256
import io
import json
import os
from pathlib import Path
import tarfile

import archive
import components

MEDIA = "application/vnd.oci.image"
PLATFORMS = {
    "x86_64": {"architecture": "amd64", "os": "linux"},
    "aarch64": {"architecture": "arm64", "os": "linux", "variant": "v8"},
}
# From the archive's tree.
FILES = {
    "usr/bin/ebb": "bin/ebb",
    "usr/local/include/ebbmalloc.h": "include/ebbmalloc.h",
    "usr/local/lib/libebbmalloc.so": "lib/libebbmalloc.so",
    "usr/share/doc/ebbmalloc/LICENSE-APACHE": "share/doc/ebbmalloc/LICENSE-APACHE",
    "usr/share/doc/ebbmalloc/LICENSE-MIT": "share/doc/ebbmalloc/LICENSE-MIT",
    "usr/share/doc/ebbmalloc/LICENSES.txt": "share/doc/ebbmalloc/LICENSES.txt",
}


class Layout:
    """Blobs by their digest."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def add(self, kind: str, content: bytes | dict) -> dict:
        """The descriptor of a new blob."""
        if isinstance(content, dict):
            content = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        digest = sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"mediaType": f"{MEDIA}.{kind}", "digest": f"sha256:{digest}", "size": len(content)}


def packed(files: dict[str, bytes], programs: set[str], epoch: int) -> bytes:
    """A tar archive of files and their folders."""
    folders = {str(folder) for name in files for folder in Path(name).parents} - {"."}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(folders | set(files), key=lambda name: name.split("/")):
            entry = tarfile.TarInfo(name)
            entry.type = tarfile.DIRTYPE if name in folders else tarfile.REGTYPE
            entry.mode = 0o755 if name in programs else 0o644
            content = files.get(name, b"")
            entry.size = len(content)
            tar.addfile(archive.plain(entry, epoch), io.BytesIO(content))
    return buffer.getvalue()


def labels(created: str) -> dict[str, str]:
    """The annotations that the image specification defines."""
    values = {
        "created": created,
        "description": "Finds out why a process keeps memory, and preloads an allocator that returns it",
        "licenses": components.workspace()["license"],
        "revision": os.environ.get("EBB_COMMIT") or components.run("git", "rev-parse", "HEAD").strip(),
        "source": components.project(),
        "title": "ebb",
        "version": components.version(),
    }
    return {f"org.opencontainers.image.{name}": value for name, value in values.items()}


def image(layout: Layout, arch: str, tree: Path, annotations: dict[str, str], epoch: int, level: int) -> dict:
    """The descriptor of one architecture's manifest."""
    created = annotations["org.opencontainers.image.created"]
    files = {name: (tree / source).read_bytes() for name, source in FILES.items()}
    tar = packed(files, {"usr/bin/ebb"}, epoch)
    config = PLATFORMS[arch] | {
        "created": created,
        "config": {"Entrypoint": ["/usr/bin/ebb"], "Env": ["PATH=/usr/bin"], "Labels": annotations, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(tar).hexdigest()}"]},
        "history": [{"created": created, "created_by": "packages/images.py"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": layout.add("config.v1+json", config),
        "layers": [layout.add("layer.v1.tar+gzip", gzip.compress(tar, level, mtime=0))],
        "annotations": annotations,
    }
    return layout.add("manifest.v1+json", manifest) | {"platform": PLATFORMS[arch]}


def index(manifests: list[dict], **more) -> dict:
    return {"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": manifests} | more


def build(trees: dict[str, Path], out: Path, epoch: int, level: int = 9) -> str:
    """The layout of the archives' trees by architecture, in `out`. The digest of the index, which is written next to it."""
    layout = Layout()
    annotations = labels(datetime.fromtimestamp(epoch, timezone.utc).isoformat().replace("+00:00", "Z"))
    manifests = [image(layout, arch, tree, annotations, epoch, level) for arch, tree in trees.items()]
    whole = layout.add("index.v1+json", index(manifests, annotations=annotations))
    version = components.version()
    # Both names of it: that of the specification, and the one that docker and containerd load.
    names = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"{components.IMAGE}:{version}"}
    files = {f"blobs/sha256/{digest}": blob for digest, blob in layout.blobs.items()}
    files["index.json"] = json.dumps(index([whole | {"annotations": names}]), sort_keys=True).encode()
    files["oci-layout"] = b'{"imageLayoutVersion":"1.0.0"}'
    (out / f"ebbmalloc-{version}-image.tar").write_bytes(packed(files, set(), epoch))
    (out / f"ebbmalloc-{version}-image.digest").write_text(f"{whole['digest']}\n")
    return whole["digest"]
