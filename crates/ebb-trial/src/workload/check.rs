//! Whether a workload that was read can be run, found out before anything is started.

use super::{FORMAT, Phase, Ready, Request, Workload};
use crate::results::PhaseKind;
use crate::template::{self, Values};
use ebb_allocators::Allocator;
use std::collections::BTreeMap;

/// Allocators that can be recognised inside a program; one that cannot be recognised is no variant.
const LINKED: [Allocator; 3] = [Allocator::Ebbmalloc, Allocator::Jemalloc, Allocator::Mimalloc];

impl Workload {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.format != FORMAT {
            let format = self.format;
            return Err(format!("format = {format} is not supported; this ebb reads {FORMAT}"));
        }
        for phase in &self.phases {
            phase.check(&self.cycles).map_err(|message| format!("phase \"{}\": {message}", phase.name))?;
        }
        let loaded = self.phases.iter().position(|phase| phase.kind != PhaseKind::Idle);
        let rest = self.phases.iter().rposition(|phase| phase.kind == PhaseKind::Idle);
        if !matches!((loaded, rest), (Some(load), Some(rest)) if load < rest) {
            return Err(
                "there is no idle phase after a load: without a rest a trial cannot show what memory is kept".into()
            );
        }
        for (name, variant) in &self.variants {
            if variant.linked && !LINKED.map(Allocator::name).contains(&variant.allocator.as_str()) {
                return Err(format!(
                    "[variants.{name}] is linked, but ebb cannot recognise allocator = \"{}\" inside a program; it \
                     recognises {}",
                    variant.allocator,
                    LINKED.map(Allocator::name).join(", ")
                ));
            }
        }
        self.trim.iter().try_for_each(|ask| ask.check("[trim]"))?;
        self.live.iter().try_for_each(|ask| ask.check("[live]"))?;
        self.check_templates()
    }

    fn check_templates(&self) -> Result<(), String> {
        let values = self.example_values();
        let mut texts: Vec<&String> = Vec::new();
        texts.extend(self.setup.iter().chain(&self.prepare).flat_map(|job| &job.command));
        for companion in &self.companions {
            texts.extend(companion.command.iter().chain(companion.env.values()));
            texts.extend(companion.ready.iter().flat_map(Ready::texts));
        }
        texts.extend(self.service.command.iter().chain(self.service.env.values()));
        texts.extend(self.service.ready.texts());
        texts.extend(&self.service.health);
        for phase in &self.phases {
            texts.extend(phase.command.iter().flatten());
            texts.extend(phase.ask.iter().flat_map(Request::texts));
        }
        for variant in self.variants.values() {
            texts.extend(variant.beside.iter().chain(variant.command.iter().flatten()));
        }
        for ask in self.trim.iter().chain(&self.live) {
            texts.extend(ask.texts());
        }
        for text in texts {
            template::fill(text, &values)?;
        }
        for phase in &self.phases {
            phase.idle_seconds(&values).map_err(|message| format!("phase \"{}\": {message}", phase.name))?;
        }
        // An image has a command of its own.
        let service = Some(&self.service.command).filter(|_| self.service.image.is_none());
        let mut commands = service
            .into_iter()
            .chain(self.companions.iter().map(|companion| &companion.command))
            .chain(self.phases.iter().filter_map(|phase| phase.command.as_ref()))
            .chain(self.variants.values().filter_map(|variant| variant.command.as_ref()));
        if commands.any(Vec::is_empty) { Err("a command is empty".into()) } else { Ok(()) }
    }

    /// Every name that a run defines, with values that are good enough for a check.
    fn example_values(&self) -> Values {
        let ports = self.companions.iter().map(|companion| format!("port.{}", companion.name));
        let names = template::NAMES.map(str::to_owned).into_iter().chain(ports);
        let mut values = self.vars();
        values.extend(names.map(|name| (name, "1".to_owned())));
        values
    }
}

impl Ready {
    fn texts(&self) -> Vec<&String> {
        match self {
            Ready::Http(text) | Ready::Tcp(text) => vec![text],
            Ready::Command(parts) => parts.iter().collect(),
            // A regular expression has braces of its own.
            Ready::Line(_) => Vec::new(),
        }
    }
}

impl Request {
    fn check(&self, name: &str) -> Result<(), String> {
        if self.http.is_some() == self.command.is_some() {
            return Err(format!("{name} needs http or command"));
        }
        Ok(())
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        self.http.iter().chain(self.command.iter().flatten())
    }
}

impl Phase {
    fn check(&self, cycles: &BTreeMap<String, u32>) -> Result<(), String> {
        match (self.kind, &self.command, &self.seconds) {
            (PhaseKind::Idle, None, Some(_)) => {}
            (PhaseKind::Idle, _, _) => {
                return Err("an idle phase has `seconds` and no `command`".into());
            }
            (_, Some(_), None) => {}
            _ => return Err("a loaded phase has a `command` and no `seconds`".into()),
        }
        if let Some(ask) = &self.ask {
            if self.kind != PhaseKind::Idle {
                return Err("only an idle phase has `ask`".into());
            }
            ask.check("`ask`")?;
        }
        match (&self.cycle, self.repeat) {
            (Some(_), Some(_)) => Err("`cycle` and `repeat` cannot be used together".into()),
            (Some(name), None) if !cycles.contains_key(name) => Err(format!("[cycles] has no number for \"{name}\"")),
            _ => Ok(()),
        }
    }
}
