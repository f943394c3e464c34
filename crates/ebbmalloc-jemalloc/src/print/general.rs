//! The general part: version, build, settings, what all arenas have in common.

use super::emitter::Emitter;
use super::group::group;
use super::value::{number, value};

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
