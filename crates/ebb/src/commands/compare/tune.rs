//! The variants of `--tune`: the settings of one allocator that people deploy.

use super::programs;
use crate::exit::Failure;
use ebb_allocators::{Allocator, CPYTHON_TO_MALLOC};
use ebb_process::runtime;
use ebb_process::snapshot::Runtime;
use ebb_trial::variant::VariantSpec;
use ebb_trial::workload::Workload;

/// How many of the settings are tried on CPython with its own arenas switched off as well: none, and the
/// one that is deployed most.
const WITHOUT_ARENAS: usize = 2;

/// The variants, the one without settings first.
pub fn specs(allocator: &str, workload: &Workload) -> Result<Vec<VariantSpec>, Failure> {
    let tunings = ebb_allocators::tunings(allocator).ok_or_else(|| {
        Failure::usage(format!("--tune {allocator}: ebb knows no settings to try"))
            .remedy(format!("known are {}", Allocator::known_names()))
    })?;
    let allocator = Allocator::from_choice(allocator).map_or(allocator, |it| it.name());
    let mut specs: Vec<VariantSpec> = tunings
        .iter()
        .map(|tuning| VariantSpec {
            name: tuning.name.to_owned(),
            allocator: allocator.to_owned(),
            env: tuning.env.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            ..VariantSpec::default()
        })
        .collect();
    // ebbmalloc serves CPython's objects without the variable.
    if is_cpython(workload) && allocator != Allocator::Ebbmalloc.name() {
        let (key, value) = CPYTHON_TO_MALLOC;
        for at in 0..WITHOUT_ARENAS.min(specs.len()) {
            let mut more = specs[at].clone();
            more.name = format!("{}+{key}={value}", more.name);
            more.env.insert(key.to_owned(), value.to_owned());
            specs.push(more);
        }
    }
    Ok(specs)
}

/// Whether the service's command comes to CPython; a service that starts it through a shell is not seen.
fn is_cpython(workload: &Workload) -> bool {
    let Ok(program) = programs::service_program(workload, None) else {
        return false;
    };
    // A shim such as pyenv's is a script of that name.
    [&program.path, &program.image].into_iter().any(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(runtime::of_name) == Some(Runtime::Cpython)
    })
}
