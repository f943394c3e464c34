//! Replicas, restarts and requests that Kubernetes' autoscalers would have given a recorded service. Pure.
//!
//! Used by `ebb diff` and `ebb compare` with `--autoscale`.
//!
//! - `horizontal`: the rule of the HorizontalPodAutoscaler. KEDA's memory trigger creates one, so the rule is the same.
//! - `vertical`: the recommender and the updater of the VerticalPodAutoscaler.
//!
//! A recording has other numbers of replicas than the simulation. So memory is split: the lowest that a replica ever had stays
//! in each replica, and what is above is load, which all replicas share. What an allocator holds after a burst counts as
//! load as well.

mod horizontal;
mod vertical;

pub use horizontal::Horizontal;

use crate::facts::autoscale::{Look, Outcome, Scaled, Seen, Settings, Target};
use ebb_process::record::{Group, Record, Replica};

/// The looks of a recording; what could not be read is left out. Memory is the working set, as autoscalers see it, where most
/// replicas are alone in their cgroups, and else resident memory.
pub fn looks(records: &[Record]) -> Vec<Look> {
    let begin = records.first().map_or(0.0, Record::at_s);
    let replicas = || records.iter().flat_map(|record| &record.replicas);
    let is_alone = |replica: &&Replica| replica.cgroup.as_ref().is_some_and(|it| it.others == 0);
    let are_alone = 2 * replicas().filter(is_alone).count() > replicas().count();
    let seen = |replica: &Replica| {
        let group = replica.cgroup.as_ref();
        let working_set = |group: &Group| Some(group.usage?.saturating_sub(group.inactive_file?));
        Some(Seen {
            life: replica.life(),
            bytes: if are_alone { working_set(group?) } else { replica.rss }?,
            oom_kills: group.and_then(|it| it.oom_kills).unwrap_or(0),
        })
    };
    let look = |record: &Record| {
        let replicas: Vec<Seen> = record.replicas.iter().map(seen).collect::<Option<_>>()?;
        (!replicas.is_empty()).then(|| Look { at_s: record.at_s() - begin, replicas })
    };
    records.iter().filter_map(look).collect()
}

/// The lowest limit of the replicas of a recording.
pub fn limit(records: &[Record]) -> Option<u64> {
    let replicas = records.iter().flat_map(|record| &record.replicas);
    replicas.filter_map(|replica| replica.cgroup.as_ref()?.limit).min()
}

/// The memory that one replica is to have. `limit` is the request where the settings have none.
pub fn target_bytes(settings: &Settings, limit: Option<u64>) -> Result<f64, String> {
    match (settings.target, settings.request.or(limit)) {
        (Target::Bytes(bytes), _) => Ok(bytes as f64),
        (Target::Utilization(share), Some(request)) => Ok(share * request as f64),
        (Target::Utilization(_), None) => {
            Err("no memory limit is known: add request=512Mi, or give a target in bytes".to_owned())
        }
    }
}

/// Simulates; `limit` is the request where the settings have none.
pub fn simulate(
    looks: &[Look],
    settings: &Settings,
    limit: Option<u64>,
) -> Result<Outcome, String> {
    let target = target_bytes(settings, limit)?;
    let (Some(first), Some(last)) = (looks.first(), looks.last()) else {
        return Err("no memory was recorded".to_owned());
    };
    let total = |look: &Look| look.replicas.iter().map(|it| it.bytes as f64).sum::<f64>();
    let mean = |look: &Look| total(look) / look.replicas.len() as f64;
    let base = looks.iter().map(mean).fold(f64::INFINITY, f64::min);
    let load = |look: &Look| total(look) - base * look.replicas.len() as f64;
    let mut horizontal = Horizontal::new(first.replicas.len() as u32, settings.min, settings.max);
    let mut changes = vec![Scaled { at_s: 0.0, replicas: horizontal.replicas() }];
    let (mut sum, mut started, mut most, mut steps) = (0.0, 0, horizontal.replicas(), 0);
    let mut next = 0;
    while horizontal::SYNC_S * f64::from(steps) <= last.at_s {
        let at_s = horizontal::SYNC_S * f64::from(steps);
        while looks.get(next + 1).is_some_and(|look| look.at_s <= at_s) {
            next += 1;
        }
        let before = horizontal.replicas();
        let of_one = base + load(&looks[next]) / f64::from(before);
        let now = horizontal.step(at_s, of_one, target);
        if now != before {
            changes.push(Scaled { at_s, replicas: now });
            started += now.saturating_sub(before);
            most = most.max(now);
        }
        sum += f64::from(now);
        steps += 1;
    }
    Ok(Outcome {
        target: target as u64,
        replicas: sum / f64::from(steps),
        most,
        started,
        changes,
        vertical: vertical::recommend(looks),
    })
}

#[cfg(test)]
mod tests;
