//! The settings of a trial that all its runs share ([`TrialContext`]); the folder, ports, variables and environment of one
//! run ([`RunContext`]), which starts its processes; and why a run fails ([`RunError`]).

use crate::container::{Container, Running, Start};
use crate::interrupt::{Groups, Interrupt};
use crate::launch::{Launch, Process};
use crate::logs::Logs;
use crate::results::{Metric, Run};
use crate::sampler::{Observer, RunCgroups};
use crate::schedule::Step;
use crate::template::{self, Values};
use crate::variant::Prepared;
use crate::workload::Workload;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The first port that is tried for a service: lower ones are often somebody's by custom.
const FIRST_PORT: u16 = 10_240;

/// What all runs of a trial have in common.
#[derive(Clone)]
pub struct TrialContext<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// The phases in order.
    pub steps: &'a [Step],
    /// Reads the processes.
    pub observer: Arc<dyn Observer>,
    /// Set when the user interrupts the trial.
    pub interrupt: Interrupt,
    /// Process groups to kill at the second interrupt.
    pub groups: Groups,
    /// The memory metric that is compared.
    pub metric: Metric,
    /// Between two samples.
    pub interval: Duration,
    /// Where the logs go.
    pub logs: &'a Logs,
    /// Creates a cgroup with the trial's limits for each run, if there are limits.
    pub cgroups: Option<&'a dyn RunCgroups>,
    /// What the service runs in, if it does not run on this machine itself.
    pub container: Option<&'a Container>,
}

pub(super) enum RunError {
    /// With the last lines that the process wrote.
    Failed {
        reason: String,
        last_lines: Vec<String>,
    },
    Discarded(String),
    Interrupted,
}

impl From<String> for RunError {
    fn from(reason: String) -> RunError {
        RunError::Failed { reason, last_lines: Vec::new() }
    }
}

/// Adds a note to the results of a run, once.
pub(crate) fn note(record: &mut Run, text: String) {
    if !record.notes.contains(&text) {
        record.notes.push(text);
    }
}

/// A failure of the run with the last lines of `process`.
pub(super) fn failed(reason: String, process: &Process) -> RunError {
    RunError::Failed { reason, last_lines: process.last_lines() }
}

/// The folder, ports, variables and environment of one run.
pub struct RunContext<'a> {
    pub(super) workload: &'a Workload,
    pub(super) values: Values,
    pub(super) env: BTreeMap<String, String>,
    pub(super) run_mark: String,
    pub(super) groups: Groups,
    /// Set when the user interrupts the trial.
    pub interrupt: Interrupt,
    pub(super) logs: PathBuf,
    container: Option<&'a Container>,
    dir: PathBuf,
}

impl<'a> RunContext<'a> {
    pub(super) fn create(
        trial: &TrialContext<'a>,
        variant: &Prepared,
        repetition: u32,
        run_mark: String,
    ) -> Result<(RunContext<'a>, tempfile::TempDir), RunError> {
        let workload = trial.workload;
        let system = |error: std::io::Error| RunError::from(format!("the folder of the run: {error}"));
        let dir = tempfile::Builder::new().prefix("ebb-").tempdir().map_err(system)?;
        let logs = trial.logs.folder().join(format!("{}-{repetition}", file_name(&variant.spec.name)));
        std::fs::create_dir_all(&logs).map_err(system)?;
        let mut values = workload.vars();
        values.insert("dir".into(), dir.path().display().to_string());
        values.insert("workload".into(), workload.dir.display().to_string());
        values.insert("variant".into(), variant.spec.name.clone());
        let names = workload.companions.iter().map(|companion| format!("port.{}", companion.name));
        let names: Vec<String> = std::iter::once("port".to_owned()).chain(names).collect();
        for (name, port) in names.iter().zip(free_ports(names.len()).map_err(system)?) {
            values.insert(name.clone(), port.to_string());
        }
        if let Ok(program) = std::env::current_exe() {
            values.insert("ebb".into(), program.display().to_string());
        }
        let mut context = RunContext {
            workload,
            env: BTreeMap::new(),
            values,
            run_mark,
            groups: trial.groups.clone(),
            interrupt: trial.interrupt.clone(),
            logs,
            container: trial.container,
            dir: dir.path().to_owned(),
        };
        for name in names.iter().map(String::as_str).chain(["dir", "workload", "variant"]) {
            context.export(name);
        }
        Ok((context, dir))
    }

    /// Gives a value to the commands as EBB_NAME.
    fn export(&mut self, name: &str) {
        let key = format!("EBB_{}", name.to_uppercase().replace(['.', '-'], "_"));
        self.env.insert(key, self.values[name].clone());
    }

    pub(super) fn define(&mut self, name: &str, value: String) {
        self.values.insert(name.to_owned(), value);
        self.export(name);
    }

    /// Puts this run's values in.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        template::fill(text, &self.values)
    }

    pub(super) fn fill_map(&self, map: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
        map.iter().map(|(key, value)| Ok((key.clone(), self.fill(value)?))).collect()
    }

    pub(super) fn launch(&self, name: &str, command: &[String], file: &str) -> Result<Process, String> {
        let command = template::fill_all(command, &self.values)?;
        let (dir, log) = (&self.workload.dir, self.logs.join(format!("{file}.out")));
        let launch = Launch::new(name.to_owned(), command, dir, &self.env, &self.run_mark, log);
        Launch { stderr: self.logs.join(format!("{file}.err")), ..launch }.start(&self.groups)
    }

    /// Runs a command of the workload to its end and gives what it wrote.
    pub fn run_to_end(&self, name: &str, command: &[String], limit: Duration) -> Result<String, String> {
        let mut process = self.launch(name, command, "command")?;
        process.finish(limit, &self.interrupt)?;
        Ok(process.output())
    }

    pub(super) fn start_service(&self, variant: &Prepared, procs_files: &[PathBuf]) -> Result<Process, RunError> {
        let service = &self.workload.service;
        let command = variant.spec.command.as_ref().unwrap_or(&service.command);
        // The environment of a run names folders and ports of this machine.
        let mut env = if self.container.is_some() { BTreeMap::new() } else { self.env.clone() };
        env.extend(self.fill_map(&service.env)?);
        env.extend(variant.spec.env.clone());
        let preloads: Vec<String> = variant
            .library
            .iter()
            .filter(|_| !variant.is_own)
            .chain(&variant.beside)
            .map(|path| path.display().to_string())
            .chain(variant.preloads.as_ref().or(env.get("LD_PRELOAD")).cloned())
            .filter(|entry| !entry.is_empty())
            .collect();
        // An image's is emptied where nothing takes its place.
        if !preloads.is_empty() || variant.preloads.is_some() {
            env.insert("LD_PRELOAD".into(), preloads.join(":"));
        }
        let command = template::fill_all(command, &self.values)?;
        let (name, log) = ("the service".to_owned(), self.logs.join("service.log"));
        if let Some(container) = self.container {
            let (of, mounts) = (Container::name(&self.run_mark), &variant.mounts);
            let (arguments, dir) = (&command, self.dir.as_path());
            let start = Start { name: &of, arguments, env: &env, mounts, dir };
            let client = container.command(&start)?;
            let launch = Launch::new(name, client, &self.workload.dir, &self.env, &self.run_mark, log);
            let running = Running { engine: container.engine.clone(), name: of };
            return Ok(Launch { container: Some(running), ..launch }.start(&self.groups)?);
        }
        let cwd = match &service.cwd {
            Some(cwd) => self.workload.dir.join(cwd),
            None => self.workload.dir.clone(),
        };
        let launch = Launch::new(name, command, &cwd, &env, &self.run_mark, log);
        Ok(Launch { procs_files, ..launch }.start(&self.groups)?)
    }
}

/// Ports that were free a moment ago, all different: the listeners are held until all are known. Below
/// the range that the kernel gives to connections, so that none of these takes one before the service does.
fn free_ports(count: usize) -> std::io::Result<Vec<u16>> {
    let given = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let first_given = given.split_whitespace().next().map(str::parse);
    let mut below: Vec<u16> = match first_given {
        Some(Ok(first)) => (FIRST_PORT..first).collect(),
        _ => Vec::new(),
    };
    fastrand::shuffle(&mut below);
    // Port 0 is any that is free: where the kernel gives out all of them.
    let listeners: Vec<TcpListener> = below
        .into_iter()
        .chain(std::iter::repeat_n(0, count))
        .filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok())
        .take(count)
        .collect();
    if listeners.len() < count {
        return Err(std::io::ErrorKind::AddrInUse.into());
    }
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// A name that is safe as a file's.
pub(super) fn file_name(name: &str) -> String {
    name.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' })
        .collect()
}
