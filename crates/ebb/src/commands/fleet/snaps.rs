//! A fleet's history from `ebb snap`: a folder with a folder or a file for each service. A folder holds a recording (`--to`) and
//! looks (`-o`), a file looks. Recordings know the usage, looks what is returnable as well.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::names::By;
use crate::exit::{Exit, Failure};
use ebb_diagnosis::facts::diagnosis::Cause;
use ebb_diagnosis::facts::fleet::{Course, Event, Group, History};
use ebb_process::record::Record;
use ebb_process::recording;
use ebb_process::snapshot::Snapshot;

/// Looks are not so close that they need a finer grid, and with more moments a year would not fit.
const LEAST_STEP_S: f64 = 60.0;
const MOST_TIMES: f64 = 20_000.0;
/// A look is valid for this many of the times between two looks of its service.
const VALID: f64 = 2.0;

/// What free memory goes when malloc_trim is called, or by itself.
const RETURNABLE: [Cause; 3] = [Cause::Trimmable, Cause::Kept, Cause::Lazy];

#[derive(Default)]
struct Service {
    records: Vec<Record>,
    looks: Vec<(f64, Snapshot)>,
}

/// Reads the looks and records of the last `period`, counted from the newest.
pub fn read(folder: &Path, by: By, period: Duration) -> Result<History, Failure> {
    let mut cautions = Vec::new();
    let services = services(folder, &mut cautions)?;
    let ends = services.values().filter_map(Service::end_s);
    let Some(to_s) = ends.reduce(f64::max) else {
        return Err(Failure::at(Exit::NotEnoughEvidence, folder, "no records and no looks of ebb snap")
            .remedy("ebb snap TARGET --to DIR/NAME records, ebb snap TARGET -o DIR/NAME.json looks once"));
    };
    let step_s = LEAST_STEP_S.max(period.as_secs_f64() / MOST_TIMES);
    let times = (period.as_secs_f64() / step_s) as usize + 1;
    let from_s = to_s - step_s * (times - 1) as f64;
    let mut history = History { from_s, step_s, times, cautions, ..History::default() };
    for (name, service) in &services {
        if !service.records.is_empty() && service.looks.is_empty() {
            history.cautions.push(format!(
                "{name}: a recording does not know what is returnable; add looks to its folder: ebb snap {name} -o TIME.json"
            ));
        }
        add(&mut history, name, service, by);
    }
    Ok(history)
}

fn services(folder: &Path, cautions: &mut Vec<String>) -> Result<BTreeMap<String, Service>, Failure> {
    let wrong = |error| Failure::at(Exit::Usage, folder, error);
    let mut services: BTreeMap<String, Service> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let service = services.entry(name).or_default();
        if path.is_dir() {
            let at = |error| Failure::at(Exit::Usage, &path, error);
            let recording = recording::read(&path).map_err(at)?;
            cautions.extend(recording.notes);
            service.records.extend(recording.records);
            for entry in std::fs::read_dir(&path).map_err(at)? {
                service.looks.extend(looks(&entry.map_err(at)?.path())?);
            }
        } else {
            service.looks.extend(looks(&path)?);
        }
    }
    services.values_mut().for_each(|it| it.looks.sort_by(|left, right| left.0.total_cmp(&right.0)));
    Ok(services)
}

/// The looks of a file: one of `ebb snap -o`, or many of `ebb snap --label`. Other files have none.
fn looks(path: &Path) -> Result<Vec<(f64, Snapshot)>, Failure> {
    if path.extension().is_none_or(|it| it != "json") {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(path).map_err(|error| Failure::at(Exit::Usage, path, error))?;
    let look = |value: Result<serde_json::Value, serde_json::Error>| {
        let look = Snapshot::from_json(&value.map_err(|error| error.to_string())?.to_string())
            .map_err(|error| error.to_string())?;
        let taken: Timestamp = look.taken.parse().map_err(|error| format!("{error}"))?;
        Ok((taken.as_millisecond() as f64 / 1e3, look))
    };
    let values = serde_json::Deserializer::from_str(&text).into_iter();
    values
        .map(look)
        .collect::<Result<_, String>>()
        .map_err(|error| Failure::at(Exit::Usage, path, error).remedy("it must be a file of `ebb snap`"))
}

impl Service {
    fn end_s(&self) -> Option<f64> {
        let record = self.records.last().map(Record::at_s);
        let look = self.looks.last().map(|(at_s, _)| *at_s);
        record.into_iter().chain(look).reduce(f64::max)
    }
}

fn add(history: &mut History, name: &str, service: &Service, by: By) {
    let (from_s, step_s, times) = (history.from_s, history.step_s, history.times);
    let index = |at_s: f64| {
        let at = ((at_s - from_s) / step_s).round();
        (at >= 0.0 && at < times as f64).then_some(at as usize)
    };
    let row = match by {
        By::Allocator | By::Namespace | By::Node => "not known".to_owned(),
        By::Workload | By::Pod | By::Unit => name.to_owned(),
    };
    let mut group = Group { name: row.clone(), node: "this".to_owned(), ..Group::default() };
    let mut replicas = Course::default();
    let mut kills: BTreeMap<String, u64> = BTreeMap::new();
    for record in &service.records {
        let Some(at) = index(record.at_s()) else { continue };
        let bytes = |replica: &ebb_process::record::Replica| {
            let cgroup = replica.cgroup.as_ref().filter(|it| it.others == 0);
            cgroup.and_then(|it| it.usage).or(replica.rss)
        };
        let usage: Option<u64> = record.replicas.iter().map(bytes).sum();
        usage.filter(|usage| *usage > 0).into_iter().for_each(|it| group.usage.set(at, it as f64));
        replicas.set(at, record.replicas.len() as f64);
        for replica in &record.replicas {
            allocator(&mut group, replica.allocator.as_deref());
            let cgroup = replica.cgroup.as_ref();
            let Some((cgroup, count)) = cgroup.and_then(|it| Some((&it.path, it.oom_kills?))) else {
                continue;
            };
            let before = kills.insert(cgroup.clone(), count).unwrap_or(count);
            if count > before {
                let event = Event { name: row.clone(), at, count: (count - before) as f64 };
                history.oom_kills.push(event);
            }
        }
    }
    let usual: Vec<f64> = service.looks.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    let usual = ebb_statistics::median(&usual).unwrap_or(step_s);
    for (number, (at_s, look)) in service.looks.iter().enumerate() {
        let ledger = ebb_diagnosis::of(look.clone()).ledger;
        let sum = |causes: &[Cause]| causes.iter().map(|it| ledger.bytes(*it)).sum::<u64>() as f64;
        look.processes.iter().for_each(|it| allocator(&mut group, it.allocator.name.as_deref()));
        // Until the next look, unless that is much later than usual.
        let next = service.looks.get(number + 1).map_or(at_s + step_s, |it| it.0);
        group.looks += f64::from(u8::from(index(*at_s).is_some()));
        let end = next.min(at_s + VALID * usual.max(step_s));
        if end < from_s {
            continue;
        }
        // A float below 0 becomes 0.
        let [first, end] = [*at_s, end].map(|at_s| ((at_s - from_s) / step_s).round() as usize);
        for at in first..end.min(times).max(first.saturating_add(1).min(times)) {
            group.returnable.set(at, sum(&RETURNABLE));
            group.live.set(at, sum(&[Cause::Live]));
            if service.records.is_empty() {
                let own = look.cgroup.as_ref().filter(|it| it.pids.len() == look.processes.len());
                let usage = own.and_then(|it| it.usage).unwrap_or(ledger.total);
                group.usage.set(at, usage as f64);
            }
        }
    }
    history.groups.push(group);
    history.replicas.insert(row, replicas);
}

fn allocator(group: &mut Group, name: Option<&str>) {
    let name = name.map(str::to_owned).filter(|name| !group.allocators.contains(name));
    group.allocators.extend(name);
}
