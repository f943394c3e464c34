//! All statistics as text, in words or as JSON.

use std::io::{self, Write};

use super::tree;

/// How they are printed, and which parts are left out.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// As JSON.
    pub json_format: bool,
    /// Without what stays the same while the process runs.
    pub skip_constants: bool,
    /// Without the sums over all arenas.
    pub skip_merged_arenas: bool,
    /// Without the single arenas.
    pub skip_per_arena: bool,
    /// Without the classes of small blocks.
    pub skip_bin_size_classes: bool,
    /// Without the classes of large blocks.
    pub skip_large_size_classes: bool,
    /// Without the mutexes.
    pub skip_mutex_statistics: bool,
}

impl Options {
    fn letters(self) -> Vec<u8> {
        [
            (self.json_format, b'J'),
            (self.skip_constants, b'g'),
            (self.skip_merged_arenas, b'm'),
            (self.skip_per_arena, b'a'),
            (self.skip_bin_size_classes, b'b'),
            (self.skip_large_size_classes, b'l'),
            (self.skip_mutex_statistics, b'x'),
        ]
        .into_iter()
        .filter_map(|(wanted, letter)| wanted.then_some(letter))
        .collect()
    }
}

/// Writes the statistics of this moment. The first error of the writer ends it.
pub fn stats_print(mut writer: impl Write, options: Options) -> io::Result<()> {
    let mut result = Ok(());
    tree::print(
        &mut |text| {
            if result.is_ok() {
                result = writer.write_all(text.to_bytes());
            }
        },
        &options.letters(),
    );
    result
}
