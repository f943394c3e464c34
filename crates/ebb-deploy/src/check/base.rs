//! What is known about a base image by its name alone. Pure.

use ebb_process::elf::Libc;

/// Repositories that are Debian or Ubuntu unless their tag says otherwise; their images bring no allocator's library.
const OF_DEBIAN: &str = "debian ubuntu python node ruby php perl golang rust gcc buildpack-deps eclipse-temurin nginx \
                         httpd postgres";

/// Other repositories whose images bring none.
const WITHOUT_ALLOCATOR: &str = "alpine fedora rockylinux almalinux centos amazonlinux busybox openjdk";

/// Words of tags that are other systems under the same name, such as -ubi9, -oraclelinux8 and -al2023.
const OTHER_SYSTEMS: &[&str] = &["ubi", "oracle", "al20", "fedora", "nanoserver", "windows"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base<'a> {
    name: &'a str,
    tag: &'a str,
}

impl<'a> Base<'a> {
    /// Splits `registry/owner/name:tag@digest`.
    pub fn parse(image: &'a str) -> Self {
        let image = image.split('@').next().unwrap_or(image);
        let image = image.strip_prefix("docker.io/").unwrap_or(image);
        let image = image.strip_prefix("library/").unwrap_or(image);
        // A colon before the last slash is that of a port.
        let from = image.rfind('/').map_or(0, |at| at + 1);
        match image[from..].find(':') {
            Some(at) => Self { name: &image[..from + at], tag: &image[from + at + 1..] },
            None => Self { name: image, tag: "" },
        }
    }

    /// The repository, without `docker.io/library/`.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The tag; empty where there is none.
    pub fn tag(&self) -> &'a str {
        self.tag
    }

    /// Its libc, where the name tells.
    pub fn libc(&self) -> Option<Libc> {
        let is_alpine = |text: &str| text.split(['-', '.', '/']).any(|it| it.starts_with("alpine"));
        if is_alpine(self.name) || is_alpine(self.tag) {
            return Some(Libc::Musl);
        }
        match self.name {
            // Without a word about it busybox is a static program, and "glibc" one of its tags.
            "busybox" | "scratch" => None,
            _ => self.is_without_allocator().then_some(Libc::Glibc),
        }
    }

    fn is_one_of(&self, repositories: &str) -> bool {
        repositories.split(' ').any(|it| it == self.name)
    }

    /// Whether it is known to bring no allocator's library.
    pub fn is_without_allocator(&self) -> bool {
        self.is_one_of(OF_DEBIAN) || self.is_one_of(WITHOUT_ALLOCATOR) || self.name.starts_with("gcr.io/distroless/")
    }

    /// Whether it is Debian or Ubuntu; an Alpine image of such a name is for [`Self::libc`] to tell.
    pub fn is_of_debian(&self) -> bool {
        self.is_one_of(OF_DEBIAN) && !OTHER_SYSTEMS.iter().any(|word| self.tag.contains(word))
    }

    /// Whether it has no loader, so that only static programs run in it.
    pub fn has_no_loader(&self) -> bool {
        self.name == "scratch" || self.name.starts_with("gcr.io/distroless/static")
    }

    /// Whether programs are built with Go in it.
    pub fn is_go(&self) -> bool {
        self.name == "golang" || self.name.ends_with("/golang")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_libc() {
        for (image, libc) in [
            ("alpine:3.20", Some(Libc::Musl)),
            ("python:3.12-alpine3.20", Some(Libc::Musl)),
            ("docker.io/library/python:3.12-slim@sha256:1", Some(Libc::Glibc)),
            ("registry:5000/team/service:1", None),
            ("registry:5000/team/service:1-alpine", Some(Libc::Musl)),
            ("scratch", None),
        ] {
            assert_eq!(Base::parse(image).libc(), libc, "{image}");
        }
    }

    #[test]
    fn an_image_from_elsewhere_may_bring_anything() {
        for (image, is_without_allocator, is_of_debian) in [
            ("debian:12", true, true),
            ("example.com/debian:12", false, false),
            ("python:3.12-slim", true, true),
            ("eclipse-temurin:21-ubi9-minimal", true, false),
            ("fedora:43", true, false),
        ] {
            let base = Base::parse(image);
            assert_eq!(base.is_without_allocator(), is_without_allocator, "{image}");
            assert_eq!(base.is_of_debian(), is_of_debian, "{image}");
        }
        assert!(Base::parse("gcr.io/distroless/static-debian12").has_no_loader());
        assert!(Base::parse("golang:1.23").is_go());
    }
}
