//! The workload's `[setup]`: once, before the first run, without a preload and unmeasured.

use super::interrupt::{Groups, Interrupt};
use super::launch::Launch;
use super::template;
use super::workload::Workload;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const SETUP_LIMIT_S: f64 = 900.0;

/// Runs it, where there is one. The error has the last lines of what it wrote.
pub fn run(
    workload: &Workload,
    logs: &Path,
    groups: &Groups,
    interrupt: &Interrupt,
) -> Result<(), (String, Vec<String>)> {
    let Some(setup) = &workload.setup else {
        return Ok(());
    };
    let plain = |reason: String| (reason, Vec::new());
    let mut values = workload.vars();
    values.insert("workload".into(), workload.dir.display().to_string());
    let env = BTreeMap::from([("EBB_WORKLOAD".to_owned(), values["workload"].clone())]);
    let log = logs.join("setup.log");
    let command = template::fill_all(&setup.command, &values).map_err(plain)?;
    let (name, mark) = ("the workload's setup".to_owned(), format!("{}-setup", std::process::id()));
    let launch = Launch::new(name, command, &workload.dir, &env, &mark, log);
    let mut process = launch.start(groups).map_err(plain)?;
    let limit = Duration::from_secs_f64(setup.timeout_s.unwrap_or(SETUP_LIMIT_S));
    process.finish(limit, interrupt).map_err(|reason| (reason, process.last_lines()))
}
