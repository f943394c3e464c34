//! The companions of a service: started before it, stopped after it.

use std::time::Duration;

use super::ask::until_ready;
use super::scene::{Scene, file_name};
use super::stage::{End, failed};
use crate::launch::{Launch, Process};
use crate::template;
use crate::workload::Companion;

/// The companions of a run with their grace; stopped last first when dropped.
pub(super) struct Companions(pub Vec<(Process, f64)>);

impl Drop for Companions {
    fn drop(&mut self) {
        for (process, grace_s) in self.0.iter_mut().rev() {
            process.stop(Duration::from_secs_f64(*grace_s));
        }
    }
}

impl Scene<'_> {
    pub(super) fn start_companion(&self, companion: &Companion) -> Result<Process, End> {
        let name = format!("companion {}", companion.name);
        let mut env = self.env.clone();
        env.extend(self.fill_map(&companion.env)?);
        let log = self.logs.join(format!("companion-{}.log", file_name(&companion.name)));
        let mut process = Launch {
            name,
            command: template::fill_all(&companion.command, &self.values).map_err(String::from)?,
            cwd: &self.workload.dir,
            env: &env,
            run_mark: &self.run_mark,
            doors: &[],
            stdout: log.clone(),
            stderr: log,
        }
        .start(&self.groups)?;
        if let Some(ready) = &companion.ready {
            let limit = Duration::from_secs_f64(companion.ready_timeout_s);
            until_ready(self, ready, &mut process, limit)
                .map_err(|reason| failed(reason, &process))?;
        }
        Ok(process)
    }
}
