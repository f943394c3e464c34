//! A shell script that starts a service: `export` lines below its head, before its first command, so that they count
//! for everything that it starts. What `LD_PRELOAD` holds when the script starts stays behind the allocator.

use std::path::Path;

use crate::check::declared::script::{INHERITED, Script, Set};

use super::edit::{apply, line_end};
use super::wish::Setting;
use super::{Edit, Elsewhere, Fixed, Refused, Wish, quoted, settle};

const SHELL: Elsewhere = Elsewhere {
    why: "is filled in by the shell",
    remedy: "write its value literally, then run ebb fix again",
};

/// What puts the allocator in charge of what the script starts.
pub fn fix(name: &str, text: &str, wish: &Wish) -> Result<Fixed, Refused> {
    let read = |text: &str| {
        let script = Script::parse(Path::new(name), text);
        script.map_err(|why| Refused::not_understood(format!("{name}: {why}")))
    };
    let script = read(text)?;
    refuse_other_ways(name, &script)?;
    let library = wish.library_elsewhere();
    let present = script.all_exported();
    let (mut settings, mut fixed) = settle(wish, &library, &present, name, &SHELL)?;
    settings.extend(unexported(wish, &script, &settings));
    let mut lines = Vec::new();
    for setting in &settings {
        match replaceable(name, &script, setting)? {
            Some(set) => fixed.edits.push(replaced(name, set, setting)?),
            None => lines.push(setting),
        }
    }
    for setting in lines {
        let line = format!("export {}={}", setting.name, with_old(setting, true)?);
        let edit = below(text, script.top, &line, &setting.why);
        fixed.edits.push(edit);
    }
    if fixed.edits.is_empty() {
        return Ok(fixed);
    }
    let after = read(&apply(text, &fixed.edits))?;
    let is_set = |it: &Setting| {
        let variable = after.service.variable(&it.name);
        variable.and_then(|it| it.value.as_ref()) == Some(&it.value)
    };
    if !settings.iter().all(is_set) || after.service.start != moved(&script, &after) {
        return Err(Refused::alters_more(name));
    }
    if wish.preloads() {
        fixed.notes.push(format!("install {library} where the script runs"));
        fixed.notes.push(
            "programs that are started without the script do not have it; ENV in the Dockerfile applies to them, too"
                .to_owned(),
        );
    }
    Ok(fixed)
}

/// Variables that hold what they should, and that no program gets.
fn unexported(wish: &Wish, script: &Script, settings: &[Setting]) -> Vec<Setting> {
    let names = wish.names().filter(|name| !settings.iter().any(|it| it.name == *name));
    let set = names.filter_map(|name| {
        let set = script.sets_of(name).filter(|it| !it.is_late()).last()?;
        let value = set.value.clone().filter(|it| !set.is_exported && !it.is_empty())?;
        Some(Setting {
            name: name.to_owned(),
            value,
            why: "without `export` no program gets it".to_owned(),
        })
    });
    set.collect()
}

/// The new value as a word of the shell; where it `inherits`, with what the variable held after it.
fn with_old(setting: &Setting, inherits: bool) -> Result<String, Refused> {
    let old = match (inherits && setting.name == "LD_PRELOAD", setting.value.is_empty()) {
        (true, false) => INHERITED,
        (true, true) => "${LD_PRELOAD:-}",
        (false, _) => "",
    };
    Ok(quoted(&setting.value)? + old)
}

/// What the script starts, on the line where that is after the change.
fn moved(before: &Script, after: &Script) -> Option<crate::check::start::Start> {
    let mut start = before.service.start.clone()?;
    start.line = after.service.start.as_ref()?.line;
    Some(start)
}

/// A variable that a command itself is given has the last word.
fn refuse_other_ways(name: &str, script: &Script) -> Result<(), Refused> {
    match script.given.first() {
        Some((line, _)) => Err(Refused::cannot(
            format!("{name}:{line}: a command itself sets LD_PRELOAD"),
            "remove it there, then run ebb fix again",
        )),
        None => Ok(()),
    }
}

/// The assignment that can take the new value; none where a line of its own has to be added.
fn replaceable<'a>(
    name: &str,
    script: &'a Script,
    setting: &'a Setting,
) -> Result<Option<&'a Set>, Refused> {
    let counts: Vec<&Set> = script.sets_of(&setting.name).filter(|it| !it.is_late()).collect();
    let refused = |line: usize, why: &str| {
        Err(Refused::cannot(
            format!("{name}:{line}: {} {why}", setting.name),
            "remove it there, then run ebb fix again",
        ))
    };
    match counts.as_slice() {
        [] => Ok(None),
        [one] if one.is_plain => Ok(Some(one)),
        [one] => refused(one.line, "is set under a condition"),
        [.., last] => refused(last.line, "is set more than once"),
    }
}

fn replaced(name: &str, set: &Set, setting: &Setting) -> Result<Edit, Refused> {
    let value = with_old(setting, set.inherits)?;
    if set.is_exported {
        return Ok(Edit::replace(set.at.clone(), value, &*setting.why));
    }
    if !set.is_alone {
        return Err(Refused::cannot(
            format!(
                "{name}:{}: {} is set without export, together with other variables",
                set.line, set.name
            ),
            "export it there, then run ebb fix again",
        ));
    }
    let text = format!("export {}={value}", setting.name);
    Ok(Edit::replace(set.from..set.at.end, text, &*setting.why))
}

/// A line of its own at a place where lines begin.
fn below(text: &str, at: usize, line: &str, why: &str) -> Edit {
    let end = line_end(text);
    let is_open = at == text.len() && !text.is_empty() && !text.ends_with('\n');
    let line = if is_open { format!("{end}{line}") } else { format!("{line}{end}") };
    Edit::replace(at..at, line, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish() -> Wish {
        Wish {
            allocator: ebb_allocators::Allocator::Ebbmalloc,
            library: Some("/l.so".to_owned()),
            variables: [("A".to_owned(), "1 2".to_owned())].into(),
            gives_way: false,
            why: "w".to_owned(),
        }
    }

    #[track_caller]
    fn assert_fixed(text: &str, expected: &str) {
        let all = |text: &str| fix("f.sh", text, &wish()).unwrap();
        let after = apply(text, &all(text).edits);
        assert_eq!(after, expected);
        assert_eq!(all(&after).edits, []);
    }

    const BOTH: &str = "export LD_PRELOAD=/l.so${LD_PRELOAD:+:$LD_PRELOAD}\nexport A='1 2'\n";

    #[test]
    fn lines_stand_below_the_head() {
        let with = |middle: &str| {
            format!(
                "#!/bin/sh\n# why\nset -eu\n{middle}\n# start\ncat <<E\nexport A=x\nE\nexec app \"$@\""
            )
        };
        assert_fixed(&with(""), &with(BOTH));
        assert_fixed("exec app\n", &format!("{BOTH}exec app\n"));
        assert_fixed(
            "#!/bin/sh\r\nexec app\r\n",
            &format!("#!/bin/sh\r\n{}exec app\r\n", BOTH.replace('\n', "\r\n")),
        );
        assert_fixed("#!/bin/sh", &format!("#!/bin/sh\n{}", BOTH.trim_end()));
    }

    #[test]
    fn an_export_that_is_there_takes_the_value() {
        for (before, after) in [
            ("export LD_PRELOAD=/x.so", "export LD_PRELOAD=/l.so:/x.so"),
            (
                "export A='1 2' LD_PRELOAD=\"libjemalloc.so.2 $LD_PRELOAD\" # c",
                "export A='1 2' LD_PRELOAD=/l.so${LD_PRELOAD:+:$LD_PRELOAD} # c",
            ),
            ("LD_PRELOAD=/x.so", "export LD_PRELOAD=/l.so:/x.so"),
            ("LD_PRELOAD=/x.so; export LD_PRELOAD", "LD_PRELOAD=/l.so:/x.so; export LD_PRELOAD"),
        ] {
            let with =
                |line: &str, top: &str| format!("#!/bin/sh\n{top}mkdir /x\n{line}\nexec app\n");
            let has_both = before.contains("A=");
            let top = if has_both { "" } else { "export A='1 2'\n" };
            assert_fixed(&with(before, ""), &with(after, top));
        }
    }

    #[test]
    fn what_has_the_last_word_is_refused() {
        for text in [
            "if x; then export LD_PRELOAD=/x.so; fi\nexec app\n",
            "export LD_PRELOAD=/x.so\nexport LD_PRELOAD=/y.so\nexec app\n",
            "LD_PRELOAD=/x.so exec app\n",
            "B=1 LD_PRELOAD=/x.so\nexec app\n",
            "exec env LD_PRELOAD=/x.so app\n",
            "f() {\n  exec env LD_PRELOAD=/x.so app\n}\nf\n",
            "export LD_PRELOAD=\"$(find / -name x.so)\"\nexec app\n",
            "#!/usr/bin/python3\nimport os\n",
            "echo \"\n",
        ] {
            assert!(fix("f.sh", text, &wish()).is_err(), "{text}");
        }
    }
}
