//! supervisor's configuration: the variables in the program's own `environment`, which wins over that of
//! `[supervisord]` and leaves the other programs alone.

use std::collections::BTreeMap;

use crate::check::declared::Service;
use crate::check::declared::supervisor::{self, Environment, Program};

use super::desired::Setting;
use super::edit::{apply, line_end, line_start};
use super::{Chosen, Desired, Edit, Fixed, OutsideValue, Refused, changes};

const EXPANSION: OutsideValue = OutsideValue {
    why: "contains an expansion of supervisor, %(...)s",
    remedy: "write its value literally, then run ebb fix again",
};

/// What puts the allocator in charge of the programs that are `chosen`.
pub fn fix(name: &str, text: &str, chosen: Chosen, desired: &Desired) -> Result<Fixed, Refused> {
    let read = |text: &str| supervisor::programs(text).map_err(|why| Refused::in_file(name, why));
    let programs = read(text)?;
    let mut fixed = Fixed::default();
    let mut expected = Vec::new();
    for program in &programs {
        let mut settings = Vec::new();
        if chosen(&program.service) {
            let (own, part) = of_program(name, text, program, desired)?;
            fixed.extend(part);
            settings = own;
        }
        expected.push(variables(&program.service, &settings));
    }
    let after = read(&apply(text, &fixed.edits))?;
    let found: Vec<_> = after.iter().map(|it| variables(&it.service, &[])).collect();
    if found != expected {
        return Err(Refused::alters_more(name));
    }
    if !fixed.edits.is_empty() {
        fixed.notes.push("then: supervisorctl reread && supervisorctl update".to_owned());
    }
    Ok(fixed)
}

/// What a program gets, with these settings.
fn variables(service: &Service, settings: &[Setting]) -> BTreeMap<String, Option<String>> {
    let present = service.env.iter().map(|it| (it.name.clone(), it.value.clone()));
    let set = settings.iter().map(|it| (it.name.clone(), Some(it.value.clone())));
    present.chain(set).collect()
}

fn of_program(name: &str, text: &str, program: &Program, desired: &Desired) -> Result<(Vec<Setting>, Fixed), Refused> {
    let service = &program.service;
    let at = format!("{name}:{}: {}", service.line, service.name);
    if let Some(start) = &service.start
        && start.words.iter().any(|it| it.starts_with("LD_PRELOAD="))
    {
        let what = format!("{name}:{}: the command itself sets LD_PRELOAD", start.line);
        return Err(Refused::cannot(what, "remove it there, then run ebb fix again"));
    }
    let library = desired.preload_entry();
    let (settings, mut fixed) = changes(desired, &library, service, &at, &EXPANSION)?;
    let mut new = Vec::new();
    for setting in &settings {
        let Some(value) = supervisor::quoted(&setting.value) else {
            let what = "supervisor's syntax cannot express the value of";
            let what = format!("{at}: {what} {}: {}", setting.name, setting.value);
            return Err(Refused::cannot(what, "choose another value"));
        };
        let own = program.own.as_ref().and_then(|it| it.pair(&setting.name));
        match own {
            Some(pair) => fixed.edits.push(Edit::replace(pair.at.clone(), value, &*setting.why)),
            None => new.push((format!("{}={value}", setting.name), setting.why.clone())),
        }
    }
    match &program.own {
        _ if new.is_empty() => {}
        Some(own) => fixed.edits.extend(appended(text, own, &new)),
        None => fixed.edits.push(line(text, program, &new)),
    }
    if !fixed.edits.is_empty() && desired.preloads() {
        fixed.notes.push(format!(
            "{}: install {library} where supervisord runs, readable for the program's user",
            service.name
        ));
    }
    Ok((settings, fixed))
}

/// A new option at the end of the section.
fn line(text: &str, program: &Program, new: &[(String, String)]) -> Edit {
    let (pairs, whys): (Vec<&str>, Vec<&str>) = new.iter().map(|(pair, why)| (pair.as_str(), why.as_str())).unzip();
    let line = format!("{}environment{}{}", program.indent, program.delimiter, pairs.join(","));
    Edit::below(text, program.last, &[line], whys.join("; "))
}

/// Pairs after the existing ones, in their style: on one line, or one on each.
fn appended(text: &str, own: &Environment, new: &[(String, String)]) -> Vec<Edit> {
    let Some(last) = own.pairs.last() else {
        // Not after the space in front of a comment, which has to stay.
        let pairs = new.iter().enumerate().map(|(number, (pair, why))| {
            let comma = if number > 0 { "," } else { "" };
            Edit::replace(own.start..own.start, format!("{comma}{pair}"), &**why)
        });
        return pairs.collect();
    };
    let line_start = line_start(text, last.from);
    let lead = &text[line_start..last.from];
    let gap = if lead.trim().is_empty() {
        format!("{}{lead}", line_end(text))
    } else {
        let before = lead.trim_end_matches([' ', '\t']);
        let is_spaced = before.ends_with(',') && before.len() < lead.len();
        if is_spaced { " " } else { "" }.to_owned()
    };
    let at = own.separator.unwrap_or(last.at.end);
    let pairs = new.iter().enumerate().map(|(number, (pair, why))| {
        let comma = if number == 0 && own.separator.is_some() { "" } else { "," };
        Edit::replace(at..at, format!("{comma}{gap}{pair}"), &**why)
    });
    pairs.collect()
}
