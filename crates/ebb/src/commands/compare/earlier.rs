//! The results of an earlier trial: for `--against`, and for `--from` of `ebb run` and `ebb fix`.

use super::machine;
use crate::exit::{Exit, Failure};
use ebb_trial::results::against::Against;
use ebb_trial::results::{FORMAT, Metric, Trial, Variant, Workload as WorkloadFacts};
use ebb_trial::variant::VariantSpec;
use ebb_trial::{against, cost, verdict};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// An earlier trial and where it was read from.
#[derive(Debug)]
pub struct Earlier {
    file: PathBuf,
    pub trial: Trial,
}

impl Earlier {
    /// Reads `results.json`, or that of a folder.
    pub fn read(at: &Path) -> Result<Earlier, Failure> {
        let file = file_of(at);
        Ok(Earlier { trial: read(&file)?, file })
    }

    /// Refuses a trial that was of something else.
    pub fn check(&self, workload: &WorkloadFacts, metric: Metric) -> Result<(), Failure> {
        match against::refusal(&self.trial, workload, metric) {
            None => Ok(()),
            Some(reason) => Err(Failure::usage(format!("{} cannot be compared with: {reason}", self.file.display()))
                .remedy("repeat that trial without --against")),
        }
    }

    /// Its variants, to be run again.
    pub fn specs(&self) -> Vec<VariantSpec> {
        let spec = |variant: &Variant| VariantSpec {
            name: variant.name.clone(),
            allocator: variant.allocator.clone(),
            beside: variant.beside.as_ref().map(|path| path.display().to_string()),
            linked: variant.linked,
            command: variant.command.clone(),
            env: variant.env.clone(),
            trim_once: variant.trim_once,
        };
        self.trial.variants.iter().map(spec).collect()
    }

    /// What changed since.
    pub fn compare(&self, now: &[Variant], threshold_share: f64) -> Against {
        against::compare(&self.file, &self.trial, now, &machine::read(), threshold_share)
    }
}

fn file_of(at: &Path) -> PathBuf {
    if at.is_dir() { at.join("results.json") } else { at.to_owned() }
}

/// Reads the results of a trial, of this layout: `results.json`, or that of a folder.
pub fn read(at: &Path) -> Result<Trial, Failure> {
    let file = &file_of(at);
    let wrong = |reason: String| {
        Failure::at(Exit::Usage, file, reason).remedy("give the results.json that ebb compare -o DIR wrote")
    };
    #[derive(Deserialize)]
    struct Layout {
        format: u32,
    }
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let layout: Layout =
        serde_json::from_str(&text).map_err(|error| wrong(format!("no results of a trial: {error}")))?;
    if layout.format != FORMAT {
        return Err(wrong(format!("it has format {}; this ebb reads {FORMAT}", layout.format)));
    }
    let mut trial: Trial = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    // Results of an older ebb may have costs in the sentence of a disturbed trial.
    if trial.canary.is_none() && cost::is_disturbed(&trial.variants) {
        trial.verdict = verdict::judge(&trial.variants, trial.metric);
    }
    Ok(trial)
}
