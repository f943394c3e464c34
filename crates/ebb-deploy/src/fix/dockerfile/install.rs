//! What brings an allocator's library into an image: its package by the image's own package manager, or
//! a copy. Pure.
//!
//! A package's library is named to the loader without its folder (`libjemalloc.so.2`): the loader looks it
//! up on every architecture, where a path would hold the name of one.

use crate::check::base::Base;
use crate::check::library::file_name;
use ebb_allocators::Allocator;

use crate::fix::Refused;
use crate::fix::desired::{Desired, IMAGE, LIBRARY, Release, SONAME};
use crate::fix::edit::{Edit, line_end};

use super::place::{At, is_root, leaves_root};
use super::python;

/// Where the library comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Context,
    /// The image of a release.
    Image,
    /// Its Python package, installed by this command.
    Python(String),
    Package(&'static Manager, &'static str),
    /// A package of Debian's `release`, copied into an image without a shell.
    Copy {
        package: &'static str,
        release: &'static str,
    },
    /// Not known; it may be in the base image.
    Unknown,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Manager {
    /// The commands that install, in words.
    commands: &'static [&'static [&'static str]],
    /// An instruction that installs: what stands before and after the package.
    run: (&'static str, &'static str),
}

const APT: Manager = Manager {
    commands: &[&["apt-get", "install"], &["apt", "install"]],
    run: ("RUN apt-get update && apt-get install -y --no-install-recommends ", " && rm -rf /var/lib/apt/lists/*"),
};
const APK: Manager = Manager { commands: &[&["apk", "add"]], run: ("RUN apk add --no-cache ", "") };
const DNF: Manager = Manager { commands: &[&["dnf", "install"]], run: ("RUN dnf install -y ", " && dnf clean all") };

/// Releases of Debian and Ubuntu by the names in tags, before and after libraries were renamed for 64-bit time.
const RELEASES: [&str; 2] = ["bullseye bookworm focal jammy", "trixie forky noble plucky questing"];
/// The same by number: in the tags of `debian` and `ubuntu` alone, elsewhere a number is that of the program.
const NUMBERS: [&str; 2] = ["11 12 20.04 22.04", "13 24.04 25.04 25.10"];

impl Source {
    /// The way that this image has.
    pub(super) fn of(desired: &Desired, base: Base<'_>, at: &At<'_>, is_named: bool) -> Result<Self, Refused> {
        if let Some(release) = &desired.release {
            return Ok(Source::of_release(release, at, is_named));
        }
        if desired.allocator == Allocator::Ebbmalloc || !desired.preloads() {
            return Ok(Source::Context);
        }
        let packages = desired.allocator.packages();
        if let Some(image) = base.name().strip_prefix("gcr.io/distroless/") {
            return distroless(desired, image);
        }
        let runs = |command: &str| at.chain.iter().flat_map(|it| &it.runs).any(|run| run.value.contains(command));
        let is_musl = base.libc() == Some(ebb_process::elf::Libc::Musl);
        if is_musl || runs("apk add") {
            return Ok(Source::Package(&APK, packages.alpine));
        }
        if base.is_of_debian() || runs("apt-get install") || runs("apt install") {
            return Ok(Source::Package(&APT, debian_package(desired, base)?));
        }
        if base.name() == "fedora" {
            if desired.allocator == Allocator::Mimalloc {
                let what = "the library in Fedora's package of mimalloc depends on the release";
                return Err(Refused::cannot(what, "choose another allocator"));
            }
            return Ok(Source::Package(&DNF, packages.fedora));
        }
        Ok(Source::Unknown)
    }

    /// A package of the kind that the image installs anyway, unless the user named an image or, by `is_named`, a path.
    fn of_release(release: &Release, at: &At<'_>, is_named: bool) -> Self {
        if release.image.is_some() || is_named {
            return Source::Image;
        }
        let package = Allocator::Ebbmalloc.packages().debian;
        match python::install_command(at) {
            Some(install) => Source::Python(install),
            None if in_list(at, &APT, package, "").is_some() => Source::Package(&APT, package),
            None => Source::Image,
        }
    }

    /// The library's name in LD_PRELOAD.
    pub(super) fn library(&self, desired: &Desired) -> String {
        match self {
            Source::Context | Source::Image | Source::Python(_) => LIBRARY.to_owned(),
            Source::Copy { package, .. } => format!("/usr/local/lib/{}", soname(package, desired)),
            Source::Package(_, package) => soname(package, desired).to_owned(),
            Source::Unknown => soname("", desired).to_owned(),
        }
    }

    /// The edits that install the library; `spelling` is its name in LD_PRELOAD.
    pub(super) fn edits(&self, desired: &Desired, at: &At<'_>, spelling: &str) -> Result<Vec<Edit>, Refused> {
        let name = desired.allocator;
        let (own_folder, own_file) = LIBRARY.rsplit_once('/').unwrap_or_default();
        let folder = spelling.rsplit_once('/').map_or(own_folder, |it| it.0);
        match self {
            Source::Context => {
                let line = format!("COPY {} {folder}/", file_name(spelling));
                let why = "copies the library, readable for every user; it needs no other library and works with glibc and musl";
                Ok(vec![Edit::below(at.text, at.behind.at.end, &[line], why)])
            }
            Source::Image => {
                let image = desired.release.as_ref().and_then(|it| it.image.as_ref());
                let image = image.ok_or_else(unnamed)?;
                let file = Some(file_name(spelling)).filter(|it| *it != own_file).unwrap_or_default();
                let line = format!("COPY --from={image} {LIBRARY} {folder}/{file}");
                let why = "copies the library of the release, for the architecture of the build; it works with glibc and musl";
                Ok(vec![Edit::below(at.text, at.behind.at.end, &[line], why)])
            }
            Source::Python(install) => {
                let version = desired.release.as_ref().map_or("", |it| &it.version);
                let run = format!("RUN {install} {name}=={version} && ebb library --out {folder}");
                let why = format!(
                    "the package {name} has ebb, which writes the library to a path without a version of Python"
                );
                Ok(as_root(at, run, &why))
            }
            Source::Unknown => Ok(Vec::new()),
            Source::Copy { package, release } => {
                let from = at.chain.last().map_or(0, |it| it.pieces[0].at.start);
                let end = line_end(at.text);
                let library = soname(package, desired);
                let lines = format!(
                    "FROM debian:{release}-slim AS ebb-{name}{end}\
                     RUN apt-get update && apt-get install -y --no-install-recommends {package} && cp /usr/lib/*/{library} /{end}{end}"
                );
                let why = "an image without a package manager: the library comes from the same release of Debian";
                let copy = format!("COPY --from=ebb-{name} /{library} /usr/local/lib/");
                let copy_why = "a folder without an architecture in its name";
                Ok(vec![
                    Edit::replace(from..from, lines, why),
                    Edit::below(at.text, at.behind.at.end, &[copy], copy_why),
                ])
            }
            Source::Package(manager, package) => {
                let why = format!("the package {package} has the library");
                if let Some(edit) = in_list(at, manager, package, &why) {
                    return Ok(vec![edit]);
                }
                let (before, after) = manager.run;
                Ok(as_root(at, format!("{before}{package}{after}"), &why))
            }
        }
    }

    pub(super) fn notes(&self, desired: &Desired) -> Vec<String> {
        if let (Source::Package(_, package), Some(_)) = (self, &desired.release) {
            return vec![format!("apt needs a source that has {package}: a repository with the release's .deb files")];
        }
        if *self != Source::Unknown {
            return Vec::new();
        }
        let (name, packages) = (desired.allocator, desired.allocator.packages().all().join(", "));
        vec![format!("it is not known how the base image installs packages: install {name} in it ({packages})")]
    }
}

/// No digest is known but that of the user.
fn unnamed() -> Refused {
    let what = "the digest of the release's image is not known";
    let how =
        format!("name it with --library-image {IMAGE}@sha256:..., as in the release's ebbmalloc-VERSION-image.digest");
    Refused::not_understood(what).remedy(how)
}

/// Into a list of packages that the image installs anyway: one word, no layer more.
fn in_list(at: &At<'_>, manager: &Manager, package: &str, why: &str) -> Option<Edit> {
    // A here-document is a script of its own, and packages that a later step purges are for the build.
    const OTHER: &str = "<<|`|purge|autoremove|apk del|--virtual| -t |--repository| -X ";
    let runs = at.chain.first()?.pieces.iter().filter(|it| it.keyword == "RUN");
    let mut lists = runs.filter(|it| it.at.end <= at.behind.at.end).filter_map(|piece| {
        let text = &at.text[piece.at.clone()];
        let is_plain = !OTHER.split('|').any(|it| text.contains(it));
        let place = manager.commands.iter().find_map(|it| first_package(text, it));
        Some((piece, place.filter(|_| is_plain)?))
    });
    let (piece, place) = lists.next()?;
    let text = &at.text[piece.at.clone()];
    let line_start = |place: usize| text[..place].rfind('\n').map_or(0, |it| it + 1);
    let mut start = line_start(place);
    let indent = &text[start..place];
    if start == 0 || !indent.trim().is_empty() {
        let place = piece.at.start + place;
        return Some(Edit::replace(place..place, format!("{package} "), why));
    }
    // A comment above the first package is about that one.
    while text[line_start(start - 1)..start].trim_start().starts_with('#') {
        start = line_start(start - 1);
    }
    let new = format!("{indent}{package} \\{}", line_end(at.text));
    let place = piece.at.start + start;
    Some(Edit::replace(place..place, new, why))
}

/// Where the list of packages begins that a command installs.
fn first_package(text: &str, command: &[&str]) -> Option<usize> {
    let mut seen = 0;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        if line.trim_start().starts_with('#') {
            continue;
        }
        let mut rest = 0;
        for word in line.split_whitespace() {
            let place = rest + line[rest..].find(word)?;
            rest = place + word.len();
            let is_option = word == "\\" || word.starts_with('-');
            match command.get(seen) {
                Some(next) if *next == word => seen += 1,
                // Options may stand between the parts of the command.
                Some(_) if is_option && seen > 0 => {}
                Some(first) => seen = usize::from(word == *first && seen == 0),
                None if is_option => {}
                None => {
                    let is_package = word.starts_with(|it: char| it.is_ascii_alphanumeric());
                    return is_package.then_some(start + place);
                }
            }
        }
    }
    None
}

/// A step that needs root: in front of the first `USER` of the stage, else with two more lines around it.
fn as_root(at: &At<'_>, run: String, why: &str) -> Vec<Edit> {
    let stage = at.chain[0];
    let inherited = at.chain[1..].iter().find_map(|it| it.user.as_deref());
    if let Some(user) = inherited.filter(|it| !is_root(it)) {
        let first = &stage.pieces[0];
        let lines = ["USER root".to_owned(), run, format!("USER {user}")];
        let why = format!("{why}; only root can install packages");
        return vec![Edit::below(at.text, first.at.end, &lines, why)];
    }
    let first_user = stage.pieces.iter().position(leaves_root);
    let first_user = first_user.filter(|it| stage.pieces[*it].at.start < at.behind.at.end);
    let behind = first_user.map_or(at.behind, |it| &stage.pieces[it.saturating_sub(1)]);
    vec![Edit::below(at.text, behind.at.end, &[run], why)]
}

/// Debian's name of the package, which depends on the release for some.
fn debian_package(desired: &Desired, base: Base<'_>) -> Result<&'static str, Refused> {
    let packages = desired.allocator.packages();
    if packages.debian == packages.debian_t64 {
        return Ok(packages.debian);
    }
    let is_system = matches!(base.name(), "debian" | "ubuntu");
    let is_of = |releases: &str| base.tag().split('-').any(|part| releases.split(' ').any(|it| it == part));
    let era = |at: usize| is_of(RELEASES[at]) || is_system && is_of(NUMBERS[at]);
    if era(1) {
        return Ok(packages.debian_t64);
    }
    if era(0) {
        return Ok(packages.debian);
    }
    let why = format!(
        "the package is called {} up to Debian 12 and Ubuntu 22.04, {} since, and {} does not say which release it is",
        packages.debian,
        packages.debian_t64,
        base.name()
    );
    Err(Refused::cannot(why, "name the release in FROM (python:3.12-slim-bookworm)"))
}

/// The images of distroless that have what the library needs.
fn distroless(desired: &Desired, image: &str) -> Result<Source, Refused> {
    let needs_cpp = desired.allocator != Allocator::Mimalloc;
    let has_cpp = ["cc", "python3", "nodejs"].iter().any(|it| image.starts_with(it));
    if image.starts_with("static") {
        // `ebb check` has the words for it.
        return Ok(Source::Unknown);
    }
    if needs_cpp && !has_cpp {
        let name = desired.allocator;
        return Err(Refused::cannot(
            format!("{name} needs libstdc++, which gcr.io/distroless/{image} does not have: no program would start"),
            "build on gcr.io/distroless/cc, or choose ebbmalloc or mimalloc, which do not need it",
        ));
    }
    let is_named = |release: &&str| image.ends_with(&format!("debian{release}"));
    let Some(release) = ["11", "12", "13"].into_iter().find(is_named) else {
        let what = format!("gcr.io/distroless/{image} does not say which release of Debian it is");
        return Err(Refused::cannot(what, "name it in FROM (-debian12)"));
    };
    let packages = desired.allocator.packages();
    let package = if release == "13" { packages.debian_t64 } else { packages.debian };
    Ok(Source::Copy { package, release })
}

fn soname(package: &str, desired: &Desired) -> &'static str {
    match package {
        "libmimalloc3" => "libmimalloc.so.3",
        "libmimalloc2.0" => "libmimalloc.so.2.0",
        "mimalloc2" => "libmimalloc.so.2",
        "libebbmalloc0" => SONAME,
        _ => desired.allocator.sonames().first().copied().unwrap_or(desired.allocator.name()),
    }
}
