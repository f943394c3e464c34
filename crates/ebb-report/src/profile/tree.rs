//! The tree of calls: stacks in order, so that those below one function are neighbours. It is never built.

use std::collections::HashMap;

use ebb_process::profile::{Profile, Stack};

use super::shown::{Shown, in_words};

/// Functions of a stack from the outermost on; no page shows more.
const MOST_DEPTH: usize = 512;

/// Stacks as numbers of names.
pub(super) struct Tree {
    /// Functions with their places, after the profile's title.
    pub names: Vec<String>,
    paths: Vec<Path>,
}

struct Path {
    /// The outermost function first.
    names: Vec<u32>,
    live: f64,
    allocated: f64,
}

/// A function in the tree, with all that was allocated below it.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    paths: &'a [Path],
    depth: usize,
}

impl Tree {
    pub fn of(profile: &Profile) -> Self {
        let mut numbers = HashMap::new();
        let mut names = vec![profile.title.clone()];
        // Names of each location, as most are in many stacks.
        let places: Vec<Vec<u32>> = profile
            .locations
            .iter()
            .map(|location| {
                let number = |line| {
                    *numbers.entry(in_words(line)).or_insert_with_key(|name: &String| {
                        names.push(name.clone());
                        u32::try_from(names.len() - 1).unwrap_or(0)
                    })
                };
                location.lines.iter().rev().map(number).collect()
            })
            .collect();
        let path = |stack: &Stack| {
            let all = stack.locations.iter().rev().flat_map(|&at| &places[at]);
            Path {
                names: all.copied().take(MOST_DEPTH).collect(),
                live: stack.live.bytes,
                allocated: stack.allocated.bytes,
            }
        };
        let mut paths: Vec<Path> = profile.stacks.iter().map(path).collect();
        paths.sort_unstable_by(|a, b| a.names.cmp(&b.names));
        Self { names, paths }
    }

    /// Above all functions.
    pub fn root(&self) -> Node<'_> {
        Node { paths: &self.paths, depth: 0 }
    }
}

impl<'a> Node<'a> {
    /// Its number in [`Tree::names`]; 0 for the root.
    pub fn name(self) -> usize {
        let path = self.paths.first().map_or(&[][..], |path| &path.names);
        self.depth.checked_sub(1).and_then(|at| path.get(at)).map_or(0, |&name| name as usize)
    }

    /// Bytes below it.
    pub fn bytes(self, shown: Shown) -> f64 {
        let bytes = |path: &Path| match shown {
            Shown::Live => path.live,
            Shown::Allocated => path.allocated,
        };
        self.paths.iter().map(bytes).sum()
    }

    /// What it calls.
    pub fn children(self) -> impl Iterator<Item = Node<'a>> {
        let depth = self.depth;
        // Shorter paths end here, and are in front.
        let ended = self.paths.partition_point(|path| path.names.len() <= depth);
        let calls = self.paths[ended..].chunk_by(move |a, b| a.names[depth] == b.names[depth]);
        calls.map(move |paths| Node { paths, depth: depth + 1 })
    }
}
