//! Stacks by function: which functions only allocate for their callers, and what each of the others has.

use std::collections::{BTreeMap, HashSet};

use ebb_allocators::Allocator;
use ebb_process::profile::{Growth, Location, Profile, Stack, Sum};
use ebb_process::symbols::Line;

use super::shown::{Shown, in_words, rank};

/// Functions that allocate for their callers, whose own code says nothing.
const HELPERS: [&str; 25] = [
    "malloc", "calloc", "realloc", "reallocarray", "aligned_alloc", "posix_memalign", "memalign", "valloc", "pvalloc",
    "strdup", "__strdup", "strndup", "__strndup", "__libc_", "operator new", "__rust_", "__rdl_", "__rg_", "alloc::",
    "<alloc::", "std::", "__gnu_cxx::new_allocator", "hashbrown::", "<hashbrown::", "core::",
];

fn is_helper(function: &str) -> bool {
    let function = without_result(function);
    // A method of another type by a trait of the library.
    let is_of_library = |name| function.starts_with('<') && function.contains(name);
    // The allocator itself, where it is linked in.
    let own = Allocator::Ebbmalloc.name();
    if is_of_library(" as alloc::") || is_of_library(" as core::") || function.trim_start_matches('<').starts_with(own)
    {
        return true;
    }
    HELPERS.iter().any(|name| {
        // A name that ends like a word is the whole of it.
        let is_whole = name.ends_with(|end: char| end.is_alphanumeric()) && !name.starts_with("operator");
        function
            .strip_prefix(name)
            .is_some_and(|rest| !is_whole || !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
    })
}

/// A name without the type of the result, which templates of C++ have in front.
fn without_result(function: &str) -> &str {
    let (mut depth, mut start) = (0_u32, 0);
    for (at, letter) in function.char_indices() {
        match letter {
            '(' if depth == 0 && at > start => break,
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 && !function[start..at].ends_with("operator") => start = at + 1,
            _ => {}
        }
    }
    &function[start..]
}

/// Whether a function only starts a program or a thread, so that everything is below it.
fn is_start(function: &str) -> bool {
    const STARTS: [&str; 9] = [
        "_start", "__libc_start", "start_thread", "clone", "__clone", "std::", "core::ops::", "<&dyn core::", "__rust_",
    ];
    function == "main" || STARTS.iter().any(|name| function.starts_with(name))
}

/// The functions of a stack from the first on that is the program's own. Where CPython runs the program, its own functions
/// are left out.
pub(super) fn own<'a>(profile: &'a Profile, stack: &'a Stack) -> Vec<&'a Line> {
    let locations = || stack.locations.iter().map(|&at| &profile.locations[at]);
    let has_python = locations().any(Location::is_python);
    let is_left_out = |it: &Location| has_python && it.module.is_some_and(|at| profile.modules[at].is_interpreter());
    let all = locations().filter(|it| !is_left_out(it)).flat_map(|it| &it.lines);
    let all: Vec<&Line> = all.collect();
    let first = all.iter().position(|line| !is_helper(&line.function)).unwrap_or(0);
    all[first..].to_vec()
}

/// What one function allocated.
#[derive(Default)]
pub(super) struct Row {
    pub own: Sum,
    pub variance: f64,
    pub growth: Growth,
    pub with_callees: f64,
    pub other: f64,
    pub place: String,
}

/// By function, what grows first, then the largest.
pub(super) fn rows(profile: &Profile, shown: Shown) -> Vec<(String, Row)> {
    // Methods of many classes have one name.
    let mut rows: BTreeMap<(&str, Option<&str>), Row> = BTreeMap::new();
    let other = match shown {
        Shown::Live => Shown::Allocated,
        Shown::Allocated => Shown::Live,
    };
    // The place of a function is where it allocates most.
    let mut stacks: Vec<&Stack> = profile.stacks.iter().collect();
    stacks.sort_by(|a, b| shown.of(b).bytes.total_cmp(&shown.of(a).bytes));
    for stack in stacks {
        let sum = shown.of(stack);
        let lines = own(profile, stack);
        let mut seen = HashSet::new();
        for (depth, line) in lines.iter().enumerate() {
            // A function that calls itself has its callees once.
            let key = (line.function.as_str(), line.file.as_deref());
            if !seen.insert(key) {
                continue;
            }
            let row = rows.entry(key).or_default();
            row.with_callees += sum.bytes;
            if row.place.is_empty() || depth == 0 && row.own.bytes == 0.0 {
                row.place = in_words(line);
            }
            if depth == 0 {
                row.own.add(sum);
                row.variance += sum.error(profile.interval as f64).powi(2);
                row.other += other.of(stack).bytes;
                row.growth.add(stack.growth.unwrap_or_default());
            }
        }
    }
    let mut rows: Vec<(String, Row)> = rows.into_iter().map(|((name, _), row)| (name.to_owned(), row)).collect();
    rows.retain(|(name, row)| row.own.bytes > 0.0 || row.with_callees > 0.0 && !is_start(name));
    rows.sort_by(|(_, a), (_, b)| {
        let by = |row: &Row| (rank(row.growth, shown), row.own.bytes, row.with_callees);
        by(b).partial_cmp(&by(a)).unwrap_or(std::cmp::Ordering::Equal)
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_are_whole_names_or_paths() {
        for name in [
            "malloc",
            "operator new(unsigned long)",
            "alloc::vec::Vec::push",
            "hashbrown::raw::x",
            "std::__detail::_MakeUniq<Session>::__single_object std::make_unique<Session, >(&&)",
        ] {
            assert!(is_helper(name), "{name}");
        }
        for name in ["malloc_pool", "allocate", "corelib", "my::alloc::x", "std::vector<int> cart<int>(int)"] {
            assert!(!is_helper(name), "{name}");
        }
    }
}
