"""The software bill of materials of an archive, in CycloneDX, by the library of the OWASP foundation.

cargo-cyclonedx writes one file per program next to each Cargo.toml, with the build machine's paths in it, and knows neither
the static C library nor the hashes of the packages.
"""

from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

import components


def entry(part: components.Component) -> Component:
    purl = PackageURL(part.purl_type, "debian" if part.purl_type == "deb" else None, part.name, part.version)
    return Component(
        name=part.name, version=part.version, purl=purl, bom_ref=purl.to_string(),
        licenses=[LicenseFactory().make_from_string(part.licence)],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else [],
    )


def bill(name: str, archive: Path, parts: list[components.Component], epoch: int) -> str:
    """Of one archive. The serial number follows from the archive's bytes."""
    digest = sha256(archive.read_bytes()).hexdigest()
    version = components.version()
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, f"{components.project()}#{digest}"), components=map(entry, parts))
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, timezone.utc)
    bom.metadata.component = root = Component(
        name=name, version=version, type=ComponentType.APPLICATION, bom_ref=f"{name}@{version}",
        licenses=[LicenseFactory().make_from_string("MIT OR Apache-2.0")],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
    )
    bom.register_dependency(root, bom.components)
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1) + "\n"
