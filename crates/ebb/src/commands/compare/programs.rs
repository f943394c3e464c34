//! The programs of a trial, found before anything is started: what the service comes to, which library each variant
//! gets, and whether the load is there. A mistyped load is found out now and not after the warm-up.

use crate::exit::Failure;
use crate::terminal;
use ebb_allocators::Allocator;
use ebb_process::program::{locate, search_path};
use ebb_process::{Program, library};
use ebb_trial::template::{self, Values};
use ebb_trial::variant::{Prepared, VariantSpec};
use ebb_trial::workload::Workload;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Refuses a load, a companion or a preparation whose program is not there. A name that is known only in a run is
/// left to the run.
pub fn look_up(workload: &Workload) -> Result<(), Failure> {
    let values = values(workload);
    let phases = workload.phases.iter().filter_map(|phase| {
        let command = phase.command.as_ref()?;
        Some((format!("the load of phase \"{}\"", phase.name), command))
    });
    let companions = workload.companions.iter().map(|it| (format!("the companion \"{}\"", it.name), &it.command));
    let prepare = workload.prepare.iter().map(|it| ("prepare".to_owned(), &it.command));
    for (whose, command) in phases.chain(companions).chain(prepare) {
        let Some(program) = command.first().and_then(|word| template::fill(word, &values).ok()) else {
            continue;
        };
        if !is_there(&program, &workload.dir) {
            return Err(Failure::usage(format!("{whose}: program {program} not found"))
                .remedy("install it or correct its name; nothing was started"));
        }
    }
    Ok(())
}

/// As a run would find it: a path from the workload's folder, a name along PATH.
fn is_there(program: &str, dir: &Path) -> bool {
    let path = if program.contains('/') { dir.join(program) } else { program.into() };
    locate(path.as_os_str(), &search_path()).is_ok()
}

/// Finds the library of each variant for the service's program; one that cannot be had keeps its place,
/// with the reason.
pub fn resolve_all(specs: Vec<VariantSpec>, workload: &Workload) -> Result<Vec<Prepared>, Failure> {
    let values = values(workload);
    let prepared = specs.into_iter().map(|spec| {
        let program = service_program(workload, Some(&spec))?;
        Ok(resolve(spec, workload, &program, &values))
    });
    let prepared = prepared.collect::<Result<Vec<_>, Failure>>()?;
    let libraries: BTreeSet<&Path> = prepared.iter().filter_map(|it| it.library.as_deref()).collect();
    libraries.into_iter().for_each(terminal::note_carried);
    Ok(prepared)
}

/// The names that are known before a run.
pub fn values(workload: &Workload) -> Values {
    let mut values = workload.vars();
    if let Ok(program) = std::env::current_exe() {
        values.insert("ebb".into(), program.display().to_string());
    }
    values.insert("workload".into(), workload.dir.display().to_string());
    values
}

/// What the service's command comes to, or a variant's own, scripts followed to their interpreter.
pub fn service_program(workload: &Workload, variant: Option<&VariantSpec>) -> Result<Program, Failure> {
    let own = variant.and_then(|variant| Some((&variant.name, variant.command.as_ref()?)));
    let usage = |error: &dyn std::fmt::Display| {
        let whose = own.map_or("the service".to_owned(), |(name, _)| format!("variant {name}"));
        Failure::usage(format!("{whose} of {}: {error}", workload.workload.name))
    };
    let command = own.map_or(&workload.service.command, |(_, command)| command);
    let command = command.first().map_or("", String::as_str);
    let command = template::fill(command, &values(workload)).map_err(|error| usage(&error))?;
    let cwd = workload.dir.join(workload.service.cwd.as_deref().unwrap_or(Path::new("")));
    let command = if command.contains('/') { cwd.join(command).into_os_string() } else { command.into() };
    Program::find(&command, &search_path()).map_err(|error| usage(&error))
}

fn resolve(spec: VariantSpec, workload: &Workload, program: &Program, values: &Values) -> Prepared {
    // What the service's own environment says counts where the variant says nothing.
    let setting = |name: &str| {
        // A jemalloc inside a Rust program has a variable of its own.
        let is_inside = name == "MALLOC_CONF" && spec.linked && spec.allocator == Allocator::Jemalloc.name();
        let name = if is_inside { "_RJEM_MALLOC_CONF" } else { name };
        let own = spec.env.get(name);
        own.or_else(|| workload.service.env.get(name)).cloned()
    };
    let decay = ebb_allocators::decay(&spec.allocator, setting);
    let library = match spec.linked {
        true => Ok(None),
        false => library::resolve(&spec.allocator, &program.elf)
            .map_err(|error| error.to_string())
            .map(|choice| choice.library().map(|library| library.path.clone())),
    };
    let found = library.and_then(|library| Ok((library, beside(&spec, values)?)));
    let mut prepared = Prepared { decay, ..Prepared::as_it_is(spec) };
    match found {
        Ok((library, beside)) => {
            let is_preloaded = library.is_some() || beside.is_some();
            let image = program.image.display();
            (prepared.library, prepared.beside) = (library, beside);
            prepared.unavailable = (is_preloaded && program.elf.is_static())
                .then(|| format!("{image} is statically linked, so nothing can be preloaded"));
        }
        Err(reason) => prepared.unavailable = Some(reason),
    }
    prepared
}

/// The file that is preloaded together with the allocator; the loader would go on without one that is missing.
fn beside(spec: &VariantSpec, values: &Values) -> Result<Option<PathBuf>, String> {
    let Some(text) = &spec.beside else {
        return Ok(None);
    };
    let path = template::fill(text, values).map_err(|error| error.to_string())?;
    std::fs::canonicalize(&path).map(Some).map_err(|error| {
        format!("{path}, which is preloaded with the allocator: {error}; the workload's setup should create it")
    })
}
