//! What an image starts: the program of `ENTRYPOINT` and `CMD`. Pure.

use super::image::{Placed, Stage, Words};
use crate::check::start::{Start, words};

/// What the image made by `chain`, the nearest stage first, starts.
pub fn start(chain: &[&Stage]) -> Option<Start> {
    let mut entrypoint: Option<&Placed<Words>> = None;
    let mut cmd: Option<&Placed<Words>> = None;
    for stage in chain {
        if cmd.is_none() && entrypoint.is_none() {
            cmd = stage.cmd.as_ref();
        }
        entrypoint = entrypoint.or(stage.entrypoint.as_ref());
    }
    let split = |it: &Words| match it {
        Words::Exec(words) => words.clone(),
        Words::Shell(text) => words(text),
    };
    let first = entrypoint.or(cmd)?;
    let mut started = split(&first.value);
    let by_shell = matches!(first.value, Words::Shell(_));
    // An entrypoint in shell form takes no arguments.
    if let (Some(_), Some(cmd), false) = (entrypoint, cmd, by_shell) {
        started.extend(split(&cmd.value));
    }
    Some(Start { words: started, by_shell, line: first.line })
}

#[cfg(test)]
mod tests {
    use super::super::image::Stages;
    use super::*;

    fn started(text: &str) -> Start {
        let stages = Stages::parse(text).unwrap();
        start(&stages.chain(None).unwrap()).unwrap()
    }

    #[test]
    fn a_new_entrypoint_forgets_the_command_below() {
        for (text, words) in [
            ("FROM a AS b\nENTRYPOINT [\"e\"]\nCMD [\"c\"]\nFROM b\nCMD [\"d\"]\n", "e d"),
            ("FROM a AS b\nCMD [\"c\"]\nFROM b\nENTRYPOINT [\"e\"]\n", "e"),
            ("FROM a\nENTRYPOINT run it\nCMD [\"c\"]\n", "run it"),
        ] {
            assert_eq!(started(text).words.join(" "), words, "{text}");
        }
    }

    #[test]
    fn what_drops_the_environment_is_named() {
        for (start, by) in [
            ("CMD [\"sudo\", \"-E\", \"p\"]", Some("sudo")),
            ("CMD exec su - app -c p", Some("su")),
            ("CMD su app -c p", None),
            ("CMD env -i p", Some("env")),
            ("CMD env A=1 p", None),
            ("CMD env -i LD_PRELOAD=a.so p", None),
            ("CMD sudo env LD_PRELOAD=a.so p", None),
            ("CMD sudo LD_PRELOAD=a.so p", Some("sudo")),
            ("CMD setpriv --reuid=app --reset-env p", Some("setpriv")),
            ("CMD setpriv --reuid=app p", None),
            ("CMD gosu app p", None),
            ("CMD su-exec app p", None),
            ("ENTRYPOINT [\"/sbin/init\"]", Some("/sbin/init")),
            ("CMD [\"terraform\", \"init\"]", None),
        ] {
            let start = started(&format!("FROM a\n{start}\n"));
            assert_eq!(start.drops_environment().as_deref(), by, "{start:?}");
        }
    }

    #[test]
    fn assignments_count_only_where_a_shell_reads_them_and_ebb_run_names_its_allocator() {
        for (start, assigned, through_ebb) in [
            ("CMD LD_PRELOAD=a.so p", Some("a.so"), None),
            ("CMD [\"sh\", \"-c\", \"export LD_PRELOAD=a.so; p\"]", Some("a.so"), None),
            ("CMD [\"LD_PRELOAD=a.so\", \"p\"]", None, None),
            ("ENTRYPOINT [\"/usr/bin/ebb\", \"run\", \"--\", \"p\"]", None, Some("ebbmalloc")),
            ("CMD ebb run -a jemalloc p", None, Some("jemalloc")),
        ] {
            let start = started(&format!("FROM a\n{start}\n"));
            assert_eq!(start.assigned("LD_PRELOAD"), assigned, "{start:?}");
            assert_eq!(start.through_ebb(), through_ebb, "{start:?}");
        }
    }
}
