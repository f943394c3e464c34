//! The tables of an arena by size class: bins, and large blocks.

use super::emitter::Emitter;
use super::value::number;

/// Where classes without use were left out of a table.
const GAP: &str = "                     ---\n";

/// What is counted of a bin, in the order of the JSON document.
const BIN: [&str; 9] =
    ["nmalloc", "ndalloc", "curregs", "nrequests", "nfills", "nflushes", "nreslabs", "curslabs", "nonfull_slabs"];

/// So many a second, of what has been counted since the start.
pub fn per_second(count: u64, uptime_ns: u64) -> u64 {
    match uptime_ns / 1_000_000_000 {
        0 => count,
        seconds => count / seconds,
    }
}

pub fn bins(out: &mut Emitter<'_>, arena: usize, uptime: u64) {
    let second = "(#/sec)";
    out.text(format_args!(
        "bins:{:>15}{:>4}{:>14}{:>14}{second:>8}{:>14}{second:>8}{:>15}{second:>10}{:>9}{:>13}{:>13}{:>15}{:>5}{:>4}{:>7}{:>13}{second:>8}{:>13}{second:>8}{:>13}{:>13}{second:>8}\n",
        "size", "ind", "allocated", "nmalloc", "ndalloc", "nrequests", "nshards", "curregs",
        "curslabs", "nonfull_slabs", "regs", "pgs", "util", "nfills", "nflushes", "nslabs",
        "nreslabs"
    ));
    out.array("bins");
    let page = number(format_args!("arenas.page")).max(1);
    let mut gap = false;
    for bin in 0..number(format_args!("arenas.nbins")) {
        let figure = |name: &str| number(format_args!("stats.arenas.{arena}.bins.{bin}.{name}"));
        let shape = |name: &str| number(format_args!("arenas.bin.{bin}.{name}"));
        out.element();
        for name in BIN {
            out.pair(name, &figure(name));
        }
        out.end_object();
        if out.is_json() {
            continue;
        }
        let slabs = figure("nslabs");
        if gap && slabs > 0 {
            out.text(format_args!("{GAP}"));
        }
        gap = slabs == 0;
        if gap {
            continue;
        }
        let (size, regs) = (shape("size"), shape("nregs"));
        let curregs = figure("curregs");
        let rate = |name: &str| per_second(figure(name), uptime);
        out.text(format_args!(
            "{size:>20}{bin:>4}{:>14}{:>14}{:>8}{:>14}{:>8}{:>15}{:>10}{:>9}{curregs:>13}{:>13}{:>15}{regs:>5}{:>4} {:>6}{:>13}{:>8}{:>13}{:>8}{slabs:>13}{:>13}{:>8}\n",
            curregs * size,
            figure("nmalloc"),
            rate("nmalloc"),
            figure("ndalloc"),
            rate("ndalloc"),
            figure("nrequests"),
            rate("nrequests"),
            shape("nshards"),
            figure("curslabs"),
            figure("nonfull_slabs"),
            shape("slab_size") / page,
            Share(curregs, regs * figure("curslabs")),
            figure("nfills"),
            rate("nfills"),
            figure("nflushes"),
            rate("nflushes"),
            figure("nreslabs"),
            rate("nreslabs"),
        ));
    }
    out.end_array();
    if gap {
        out.text(format_args!("{GAP}"));
    }
}

/// A part of a whole, to three digits.
struct Share(u64, u64);

impl core::fmt::Display for Share {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self(part, whole) = *self;
        if whole == 0 || part >= whole {
            return f.pad("1");
        }
        let thousandths = part * 1000 / whole;
        let digit = |value: u64| b'0' + (value % 10) as u8;
        let text = [b'0', b'.', digit(thousandths / 100), digit(thousandths / 10), digit(thousandths)];
        f.pad(core::str::from_utf8(&text).unwrap_or("?"))
    }
}

pub fn large(out: &mut Emitter<'_>, arena: usize, uptime: u64) {
    let second = "(#/sec)";
    out.text(format_args!(
        "large:{:>14}{:>4}{:>13}{:>13}{second:>8}{:>13}{second:>8}{:>13}{second:>8}{:>13}\n",
        "size", "ind", "allocated", "nmalloc", "ndalloc", "nrequests", "curlextents"
    ));
    out.array("lextents");
    let bins = number(format_args!("arenas.nbins"));
    let mut gap = false;
    for class in 0..number(format_args!("arenas.nlextents")) {
        let figure = |name: &str| number(format_args!("stats.arenas.{arena}.lextents.{class}.{name}"));
        let current = figure("curlextents");
        out.element();
        out.pair("curlextents", &current);
        out.end_object();
        if out.is_json() {
            continue;
        }
        let made = figure("nmalloc");
        if gap && made > 0 {
            out.text(format_args!("{GAP}"));
        }
        gap = made == 0;
        if gap {
            continue;
        }
        let size = number(format_args!("arenas.lextent.{class}.size"));
        let freed = figure("ndalloc");
        out.text(format_args!(
            "{size:>20}{:>4}{:>13}{made:>13}{:>8}{freed:>13}{:>8}{made:>13}{:>8}{current:>13}\n",
            bins + class,
            current * size,
            per_second(made, uptime),
            per_second(freed, uptime),
            per_second(made, uptime),
        ));
    }
    out.end_array();
    if gap {
        out.text(format_args!("{GAP}"));
    }
}
