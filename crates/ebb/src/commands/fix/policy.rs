//! `ebb fix --policy`: prints an admission policy, or asks a Prometheus with the series of `ebb agent` which containers the policy
//! would serve.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::arguments::{Args, Policy};
use crate::exit::{Exit, Failure};
use crate::prometheus::{Server, label};
use crate::terminal;
use ebb_deploy::fix::policy::{self, Engine, Fit};

/// So many pods are named in a line.
const NAMED: usize = 3;

pub(super) fn execute(args: &Args, engine: Policy) -> Result<Exit, Failure> {
    if let Some(file) = &args.file {
        let what = format!("--policy takes no file, but there is {}", file.display());
        return Err(Failure::usage(what).remedy("leave one of the two out"));
    }
    if let Some(url) = &args.check {
        return check(url, &args.selector, args.json);
    }
    let image = args.library_image.clone().unwrap_or_else(policy::published_image);
    if !policy::is_image(&image) {
        return Err(Failure::usage(format!("--library-image {image}: not the name of an image"))
            .remedy("write it as REGISTRY/NAME:TAG or REGISTRY/NAME@DIGEST"));
    }
    let engine = match engine {
        Policy::Kubernetes => Engine::Kubernetes,
        Policy::Kyverno => Engine::Kyverno,
    };
    terminal::print(&policy::text(engine, &image, args.percent))?;
    Ok(Exit::Ok)
}

/// Containers with the same name and allocator.
#[derive(Debug, Serialize)]
struct Row {
    namespace: String,
    container: String,
    allocator: String,
    fit: Fit,
    why: &'static str,
    pods: Vec<String>,
}

impl Row {
    fn text(&self) -> String {
        let Row { namespace, container, allocator, fit, why, pods } = self;
        let on = if allocator.is_empty() { "no known malloc" } else { allocator };
        let count = pods.len();
        let mut text = format!("{fit}: {namespace} {container}, {on}, pods: {count}\n  {why}\n");
        if *fit != Fit::Fits {
            let more = if count > NAMED { ", ..." } else { "" };
            text += &format!("  {}{more}\n", pods[..count.min(NAMED)].join(", "));
        }
        text
    }
}

fn check(url: &str, selector: &str, json: bool) -> Result<Exit, Failure> {
    let server = Server::open(url, None)?;
    let selector = selector.trim().trim_start_matches('{').trim_end_matches('}');
    let query = format!(
        "max by (container_id, allocator, in_charge) (ebb_group_info) * on (container_id) \
         group_left (namespace, pod, container) max by (container_id, namespace, pod, container) (label_replace(\
         kube_pod_container_info{{container_id!=\"\",{selector}}}, \"container_id\", \"$1\", \"container_id\", \".*://(.*)\"))"
    );
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let mut looked_at = BTreeSet::new();
    server.query("ebb_group_look_timestamp_seconds", now_s, |labels, _| {
        looked_at.insert(label(labels, "container_id").to_owned());
    })?;
    let mut rows: BTreeMap<(Fit, [String; 3]), Vec<String>> = BTreeMap::new();
    server.query(&query, now_s, |labels, _| {
        let own = |name| label(labels, name);
        let is_looked_at = looked_at.contains(own("container_id"));
        let fit = Fit::new(own("allocator"), own("in_charge"), is_looked_at);
        let names = ["namespace", "container", "allocator"].map(|name| own(name).to_owned());
        rows.entry((fit, names)).or_default().push(own("pod").to_owned());
    })?;
    if rows.is_empty() {
        let what = format!("{url} has no container with both ebb_group_info and {{{selector}}}");
        return Err(Failure::new(Exit::NotEnoughEvidence, what)
            .remedy("are ebb agent and kube-state-metrics scraped, and is the selector right?"));
    }
    // The worst first.
    let rows = rows.into_iter().rev().map(|((fit, [namespace, container, allocator]), mut pods)| {
        pods.sort();
        Row { namespace, container, allocator, fit, why: fit.why(), pods }
    });
    let rows: Vec<Row> = rows.collect();
    if json {
        terminal::print_json(&rows, true)?;
    } else {
        terminal::print(&rows.iter().map(Row::text).collect::<String>())?;
    }
    let worst = rows.first().map_or(Fit::Fits, |row| row.fit);
    Ok(match worst {
        Fit::Fits | Fit::There => Exit::Ok,
        Fit::Unknown => Exit::NotEnoughEvidence,
        Fit::GainsNothing | Fit::MayBreak => Exit::NotInCharge,
    })
}
