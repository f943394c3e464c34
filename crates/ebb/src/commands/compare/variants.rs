//! Chooses the variants of a trial: by the command line, an earlier trial, the profile or the workload.

use super::earlier::Earlier;
use super::tune;
use crate::exit::Failure;
use ebb_allocators::{Allocator, USUAL};
use ebb_trial::variant::{self, TRIM_ONCE, VariantSpec};
use ebb_trial::workload::Workload;

/// What the command line says of them.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub variants: &'a [String],
    pub tune: Option<&'a String>,
}

/// One line per known variant: its name, and what it sets.
pub fn list() -> String {
    let line = |name: &str, what: &str| format!("{name:24}{what}").trim_end().to_owned() + "\n";
    let known = ebb_allocators::all_tunings().map(|(_, tuning)| {
        let env: Vec<String> = tuning.env.iter().map(|(key, value)| format!("{key}={value}")).collect();
        line(tuning.name, &env.join(" "))
    });
    let trimmed = format!("{}+{TRIM_ONCE}", Allocator::Glibc);
    let what = "malloc_trim(0) is called once from outside when the last rest begins; a reference";
    known.chain([line(&trimmed, what)]).collect()
}

/// What is to be compared: the settings of one allocator, or what was requested, or what an earlier trial
/// had, or the workload's choice.
pub fn specs(asked: Asked<'_>, workload: &Workload, earlier: Option<&Earlier>) -> Result<Vec<VariantSpec>, Failure> {
    if let Some(allocator) = asked.tune {
        return tune::specs(allocator, workload);
    }
    if let (true, Some(earlier)) = (asked.variants.is_empty(), earlier) {
        return Ok(earlier.specs());
    }
    let parsed = variant::parse(&chosen(asked, workload), &workload.variants);
    parsed.map_err(|error| Failure::usage(error.to_string()))
}

/// The items of `--variants`, or those of the profile, or the usual ones and the workload's own.
fn chosen(asked: Asked<'_>, workload: &Workload) -> Vec<String> {
    if !asked.variants.is_empty() {
        return asked.variants.to_vec();
    }
    workload
        .chosen_variants
        .clone()
        .unwrap_or_else(|| USUAL.map(str::to_owned).into_iter().chain(workload.variants.keys().cloned()).collect())
}

/// Whether somebody said which variants there are.
pub fn has_chosen(asked: Asked<'_>, workload: &Workload) -> bool {
    !asked.variants.is_empty() || asked.tune.is_some() || workload.chosen_variants.is_some()
}
