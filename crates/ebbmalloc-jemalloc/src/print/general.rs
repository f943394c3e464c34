//! The general part: version, build, settings, what all arenas have in common.

use super::emitter::Emitter;
use super::value::{number, shown, value};
use crate::node::Kind;
use crate::tree::{DEPTH, name_to_mib};

pub fn print(out: &mut Emitter<'_>) {
    if let Some(version) = value(format_args!("version")) {
        out.pair("version", &version);
        out.text(format_args!("Version: {version}\n"));
    }
    group(out, "config", "Build-time option settings");
    group(out, "opt", "Run-time option settings");
    profiling(out);
    arenas(out);
}

fn profiling(out: &mut Emitter<'_>) {
    out.object("prof");
    out.text(format_args!("Profiling settings\n"));
    for name in ["thread_active_init", "active", "gdump", "interval", "lg_sample"] {
        if let Some(value) = value(format_args!("prof.{name}")) {
            out.pair(name, &value);
            out.text(format_args!("  prof.{name}: {value}\n"));
        }
    }
    out.end_object();
}

fn arenas(out: &mut Emitter<'_>) {
    const LINES: [(&str, &str); 9] = [
        ("narenas", "Arenas"),
        ("dirty_decay_ms", ""),
        ("muzzy_decay_ms", ""),
        ("quantum", "Quantum size"),
        ("page", "Page size"),
        ("hugepage", "Hugepage size"),
        ("tcache_max", "Maximum thread-cached size class"),
        ("nbins", "Number of bin size classes"),
        ("nhbins", "Number of thread-cache bin size classes"),
    ];
    out.object("arenas");
    for (name, title) in LINES {
        let Some(value) = value(format_args!("arenas.{name}")) else {
            continue;
        };
        out.pair(name, &value);
        if !title.is_empty() {
            out.text(format_args!("{title}: {value}\n"));
        }
    }
    array(out, "bin", "nbins", &["size", "nregs", "slab_size", "nshards"]);
    let large = number(format_args!("arenas.nlextents"));
    out.pair("nlextents", &large);
    out.text(format_args!("Number of large size classes: {large}\n"));
    array(out, "lextent", "nlextents", &["size"]);
    out.end_object();
}

fn array(out: &mut Emitter<'_>, name: &str, count: &str, leaves: &[&str]) {
    if !out.is_json() {
        return;
    }
    out.array(name);
    for index in 0..number(format_args!("arenas.{count}")) {
        out.element();
        for leaf in leaves {
            out.pair(leaf, &number(format_args!("arenas.{name}.{index}.{leaf}")));
        }
        out.end_object();
    }
    out.end_array();
}

/// The name of what is in force now, for a setting that can change after the start.
fn now_in_force(group: &str, setting: &str) -> Option<&'static str> {
    if group != "opt" {
        return None;
    }
    Some(match setting {
        "background_thread" => "background_thread",
        "dirty_decay_ms" => "arenas.dirty_decay_ms",
        "muzzy_decay_ms" => "arenas.muzzy_decay_ms",
        "prof_active" => "prof.active",
        "prof_thread_active_init" => "prof.thread_active_init",
        "lg_prof_sample" => "prof.lg_sample",
        _ => return None,
    })
}

/// Prints the leaves of a group, for JSON and in words alike.
fn group(out: &mut Emitter<'_>, name: &'static str, title: &str) {
    let mut mib = [0; DEPTH];
    let Ok(depth) = name_to_mib(name.as_bytes(), &mut mib) else {
        return;
    };
    let Some(Kind::Group(nodes)) = crate::tree::node(&mib[..depth]).map(|node| &node.kind) else {
        return;
    };
    out.object(name);
    out.text(format_args!("{title}\n"));
    for (index, node) in nodes.iter().enumerate() {
        mib[depth] = index;
        let Some(shown) = shown(node, &mib[..=depth]) else {
            continue;
        };
        out.pair(node.name, &shown);
        out.text(format_args!("  {name}.{}: {shown}", node.name));
        if let Some(now) = now_in_force(name, node.name) {
            out.text(format_args!(" ({now}: "));
            if let Some(value) = value(format_args!("{now}")) {
                out.text(format_args!("{value}"));
            }
            out.text(format_args!(")"));
        }
        out.text(format_args!("\n"));
    }
    out.end_object();
}
