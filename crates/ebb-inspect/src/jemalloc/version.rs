//! Which jemalloc it is: the version that it has as text, and the layout that fits its data.

use super::layout::{LAYOUTS, Layout};
use super::locate::{self, Found};
use crate::image::Image;
use crate::memory::Unreadable;
use crate::page_map;
use crate::space::Space;

/// The text of a version, its commit included, is no longer.
const VERSION_BYTES: usize = 80;

/// The version that a jemalloc answers to `mallctl("version")`, which stands in every build, commit included.
pub(super) fn version(image: &Image) -> Option<String> {
    image.search(VERSION_BYTES, |bytes| {
        let mut dashes = memchr::memmem::find_iter(bytes, b"-g");
        dashes.find_map(|at| version_around(bytes, at))
    })
}

/// `5.3.0-0-g` and a commit, whose `-g` is at `at`.
pub(super) fn version_around(bytes: &[u8], at: usize) -> Option<String> {
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.' || *byte == b'-';
    let begin = bytes[..at].iter().rposition(|byte| !is_number(byte))? + 1;
    let rest = &bytes[at + 2..];
    let end = rest.iter().position(|byte| !byte.is_ascii_hexdigit())?;
    // A commit of git's, or the first digits of one.
    if !(7..=40).contains(&end) || rest[end] != 0 || bytes[begin - 1] != 0 {
        return None;
    }
    let text = std::str::from_utf8(&bytes[begin..at + 2 + end]).ok()?;
    let (number, commits) = text.split_once('-')?;
    let mut parts = number.split('.');
    let major: u32 = parts.next()?.parse().ok()?;
    let three = parts.clone().count() == 2 && parts.all(|part| part.parse::<u32>().is_ok());
    let counted = commits.split('-').next()?.parse::<u32>().is_ok();
    ((3..=9).contains(&major) && three && counted).then(|| text.to_owned())
}

/// The layout and the structures, that of the file's own version first.
pub(super) fn recognise(
    space: Space<'_>,
    data: &[(u64, u64)],
    version: Option<&str>,
) -> Result<Option<(&'static Layout, Found)>, Unreadable> {
    let candidates = page_map::candidates(space, data)?;
    let is_own = |layout: &Layout| {
        let (major, minor, patch) = layout.version;
        version.is_some_and(|text| text.starts_with(&format!("{major}.{minor}.{patch}-")))
    };
    let (own, others): (Vec<_>, Vec<_>) = LAYOUTS.iter().partition(|layout| is_own(layout));
    for layout in own.into_iter().chain(others) {
        if let Some(found) = locate::locate(space, data, &candidates, layout)? {
            return Ok(Some((layout, found)));
        }
    }
    Ok(None)
}
