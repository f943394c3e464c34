//! What `COPY` and `ADD` bring into a stage. Pure.

use crate::check::library::file_name;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The stage or image they come from; none for the build context.
    pub from: Option<String>,
    /// Names of the copied files in the source.
    pub sources: Vec<String>,
    pub to: String,
}

impl Copied {
    /// Whether the file `path` may come from here: by its name, or in a folder that is copied whole.
    pub fn brings(&self, path: &str) -> bool {
        let folder = format!("{}/", self.to.trim_end_matches('/'));
        let is_whole = |source: &String| source.ends_with('/') || source == "." || !file_name(source).contains('.');
        self.names(path) || path.starts_with(&folder) && self.sources.iter().any(is_whole)
    }

    /// Whether the file `path` comes from here by its name: as the destination itself, or inside it.
    pub fn names(&self, path: &str) -> bool {
        let to = self.to.trim_end_matches('/');
        let Some((folder, name)) = path.rsplit_once('/') else {
            return self.sources.iter().any(|it| file_name(it) == path);
        };
        let is_called = |source: &String| {
            let own = file_name(source);
            own == name || own.contains('*') && is_like(own, name)
        };
        to == path || to == folder && self.sources.iter().any(is_called)
    }

    /// Where the file `source` lies in the image.
    pub(super) fn target_of(&self, source: &str) -> String {
        match self.to.as_str() {
            to if to.ends_with('/') => format!("{to}{}", file_name(source)),
            to => to.to_owned(),
        }
    }

    /// The file that becomes `path`, by its name in the build context; none of a folder, a pattern or an address,
    /// where no single file is named.
    pub fn source_of(&self, path: &str) -> Option<&str> {
        let is_file = |source: &&String| {
            !source.contains(['*', '?', '[', '$']) && !source.contains("://") && !source.ends_with('/')
        };
        let named = match self.sources.as_slice() {
            [one] if self.to == path => Some(one),
            all => all.iter().find(|it| file_name(it) == file_name(path)),
        };
        named.filter(is_file).map(String::as_str)
    }
}

/// Whether a name fits a pattern with stars.
fn is_like(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    pattern.ends_with('*') || rest.is_empty()
}
