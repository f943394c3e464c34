//! Names of causes, lines of a width, sizes in MB: what the renderings of a diagnosis share.

use ebb_diagnosis::facts::diagnosis::Cause;

/// What a line is called; `docs/causes.md` explains each.
pub fn label(cause: Cause) -> &'static str {
    match cause {
        Cause::Live => "live blocks",
        Cause::Trimmable => "malloc_trim would return",
        Cause::Tops => "free in secondary tops",
        Cause::Pinned => "pinned",
        Cause::Cached => "threads' caches",
        Cause::Kept => "kept free pages",
        Cause::Lazy => "returned lazily",
        Cause::Locked => "free, but locked in memory",
        Cause::Metadata => "allocator's bookkeeping",
        Cause::Objects => "CPython's objects",
        Cause::FreeObjects => "free in CPython's arenas",
        Cause::UnreadHeap => "heap, unidentified",
        Cause::Anonymous => "anonymous, not malloc's",
        Cause::Stacks => "stacks",
        Cause::Data => "data of programs and libraries",
        Cause::MappedFiles => "mapped files",
        Cause::SharedMemory => "shared memory",
        Cause::Special => "kernel's mappings",
        Cause::PageCache => "page cache",
        Cause::Tmpfs => "tmpfs, not mapped",
        Cause::Kernel => "kernel memory",
        Cause::Swap => "swap",
    }
}

/// Lines of at most `columns`. Lines after the first are indented, and a longer word has a line of its own. An unprintable
/// character is shown as `?`, because a process chooses its own name.
pub fn wrap(text: &str, columns: usize, indent: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let word = word.replace(char::is_control, "?");
        let more = word.chars().count();
        if width > 0 && width + 1 + more > columns {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            width = indent;
        } else if width > 0 {
            line.push(' ');
            width += 1;
        }
        line.push_str(&word);
        width += more;
    }
    lines.push(line);
    lines
}

/// Makes the first letter upper case.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// In MB, with one decimal.
pub(super) fn mb(bytes: i64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}
