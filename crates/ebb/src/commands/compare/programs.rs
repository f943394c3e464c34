//! The programs that a workload starts, looked up before anything is started: a mistyped load is found out now and not
//! after the warm-up.

use super::observer;
use crate::exit::{Exit, Failure};
use ebb_trial::template;
use ebb_trial::workload::Workload;
use nix::unistd::{AccessFlags, access};
use std::path::{Path, PathBuf};

/// Refuses a load, a companion or a preparation whose program is not there. A name that is known only in a run is
/// left to the run.
pub fn look_up(workload: &Workload) -> Result<(), Failure> {
    let values = observer::values(workload);
    let phases = workload.phases.iter().filter_map(|phase| {
        let command = phase.command.as_ref()?;
        Some((format!("the load of phase \"{}\"", phase.name), command))
    });
    let companions = workload
        .companions
        .iter()
        .map(|it| (format!("the companion \"{}\"", it.name), &it.command));
    let prepare = workload.prepare.iter().map(|it| ("prepare".to_owned(), &it.command));
    for (whose, command) in phases.chain(companions).chain(prepare) {
        let Some(program) = command.first().and_then(|word| template::fill(word, &values).ok())
        else {
            continue;
        };
        if !is_there(&program, &workload.dir) {
            return Err(Failure::new(Exit::Usage, format!("{whose}: program {program} not found"))
                .remedy("install it or correct its name; nothing was started"));
        }
    }
    Ok(())
}

/// As a run would find it: a path from the workload's folder, a name along PATH.
fn is_there(program: &str, dir: &Path) -> bool {
    let is_program = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    if program.contains('/') {
        return is_program(&dir.join(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.retain(|folder| !folder.as_os_str().is_empty());
    folders.iter().any(|folder| is_program(&folder.join(program)))
}
