//! A Procfile: assignments in front of the program, which the shell that starts it reads.

use crate::check::declared::is_allocator;
use crate::check::declared::procfile::{self, Process};

use super::desired::Setting;
use super::{Chosen, Desired, Edit, Fixed, OutsideValue, Refused, changes, quoted};

const SHELL: OutsideValue = OutsideValue { why: "is filled in by the shell", remedy: "write its value literally" };

/// What puts the allocator in charge of the processes that are `chosen`.
pub fn fix(name: &str, text: &str, chosen: Chosen, desired: &Desired) -> Result<Fixed, Refused> {
    let processes = procfile::processes(text).map_err(|why| Refused::in_file(name, why))?;
    let mut fixed = Fixed::default();
    for process in processes.iter().filter(|it| chosen(&it.service)) {
        let part = of_process(name, text, process, desired)?;
        fixed.extend(part);
    }
    let after = super::edit::apply(text, &fixed.edits);
    let count = |text: &str| procfile::processes(text).map(|it| it.len());
    if count(&after) != Ok(processes.len()) {
        return Err(Refused::alters_more(name));
    }
    Ok(fixed)
}

fn of_process(name: &str, text: &str, process: &Process, desired: &Desired) -> Result<Fixed, Refused> {
    let service = &process.service;
    let at = format!("{name}:{}: {}", service.line, service.name);
    let library = desired.preload_entry();
    let command = &text[process.command.clone()];
    for variable in desired.names() {
        let set = service.variable(variable);
        let is_elsewhere = set.is_none() && command.contains(&format!("{variable}="));
        if is_elsewhere || set.is_none() && variable == "LD_PRELOAD" && command.split([' ', '=', ':']).any(is_allocator)
        {
            let what = format!("{at}: {variable} is set in the middle of the command");
            return Err(Refused::cannot(what, "remove it there, then run ebb fix again"));
        }
    }
    let (settings, mut fixed) = changes(desired, &library, service, &at, &SHELL)?;
    let new: Vec<&Setting> = settings.iter().filter(|it| service.variable(&it.name).is_none()).collect();
    for setting in &settings {
        if let Some(variable) = service.variable(&setting.name) {
            let value = quoted(&setting.value)?;
            fixed.edits.push(Edit::replace(variable.at.clone(), value, &*setting.why));
        }
    }
    for (number, setting) in new.iter().enumerate() {
        let word = format!("{}={}", setting.name, quoted(&setting.value)?);
        // In front of one program an assignment is enough; in front of several commands it has to be exported.
        let before = if !process.is_simple && number == 0 { "export " } else { "" };
        let after = if !process.is_simple && number + 1 == new.len() { ";" } else { "" };
        let text = format!("{before}{word}{after} ");
        let start = process.command.start;
        fixed.edits.push(Edit::replace(start..start, text, &*setting.why));
    }
    if !fixed.edits.is_empty() && desired.preloads() {
        fixed.notes.push(format!("{}: install {library} where the process runs", service.name));
    }
    Ok(fixed)
}
