//! What is known about a base image by its name alone. Pure.

use crate::proc::elf::Libc;

/// Repositories whose images bring no allocator's library.
const WITHOUT_ALLOCATOR: &[&str] = &[
    "alpine",
    "debian",
    "ubuntu",
    "python",
    "node",
    "ruby",
    "php",
    "perl",
    "golang",
    "rust",
    "gcc",
    "buildpack-deps",
    "fedora",
    "rockylinux",
    "almalinux",
    "centos",
    "amazonlinux",
    "busybox",
    "eclipse-temurin",
    "openjdk",
    "nginx",
    "httpd",
    "postgres",
];

/// A base image.
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
            Some(at) => Self {
                name: &image[..from + at],
                tag: &image[from + at + 1..],
            },
            None => Self {
                name: image,
                tag: "",
            },
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
        let is_alpine = |text: &str| {
            text.split(['-', '.', '/'])
                .any(|it| it.starts_with("alpine"))
        };
        if is_alpine(self.name) || is_alpine(self.tag) {
            return Some(Libc::Musl);
        }
        match self.name {
            // Without a word about it busybox is a static program, and "glibc" one of its tags.
            "busybox" | "scratch" => None,
            name if WITHOUT_ALLOCATOR.contains(&name) => Some(Libc::Glibc),
            name if name.starts_with("gcr.io/distroless/") => Some(Libc::Glibc),
            _ => None,
        }
    }

    /// Whether it is known to bring no allocator's library.
    pub fn is_without_allocator(&self) -> bool {
        WITHOUT_ALLOCATOR.contains(&self.name) || self.name.starts_with("gcr.io/distroless/")
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
        let libc = |image| Base::parse(image).libc();
        assert_eq!(libc("alpine:3.20"), Some(Libc::Musl));
        assert_eq!(libc("python:3.12-alpine3.20"), Some(Libc::Musl));
        assert_eq!(
            libc("docker.io/library/python:3.12-slim@sha256:1"),
            Some(Libc::Glibc)
        );
        assert_eq!(libc("registry:5000/team/service:1"), None);
        assert_eq!(
            libc("registry:5000/team/service:1-alpine"),
            Some(Libc::Musl)
        );
        assert_eq!(libc("scratch"), None);
    }

    #[test]
    fn an_image_from_elsewhere_may_bring_anything() {
        assert!(Base::parse("debian:12").is_without_allocator());
        assert!(!Base::parse("example.com/debian:12").is_without_allocator());
        assert!(Base::parse("gcr.io/distroless/static-debian12").has_no_loader());
        assert!(Base::parse("golang:1.23").is_go());
    }
}
