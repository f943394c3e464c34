//! What an image starts: the program behind `ENTRYPOINT` and `CMD`. Pure.

use super::image::{Placed, Stage, Words};
use crate::check::start::Start;

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
    let split = |words: &Words| match words {
        Words::Exec(words) => words.clone(),
        Words::Shell(text) => shlex::split(text)
            .unwrap_or_else(|| text.split_whitespace().map(str::to_owned).collect()),
    };
    let first = entrypoint.or(cmd)?;
    let mut words = split(&first.value);
    let by_shell = matches!(first.value, Words::Shell(_));
    // An entrypoint in shell form takes no arguments.
    if let (Some(_), Some(cmd), false) = (entrypoint, cmd, by_shell) {
        words.extend(split(&cmd.value));
    }
    Some(Start { words, by_shell, line: first.line })
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
        let text = "FROM a AS b\nENTRYPOINT [\"e\"]\nCMD [\"c\"]\nFROM b\nCMD [\"d\"]\n";
        assert_eq!(started(text).words, ["e", "d"]);
        let text = "FROM a AS b\nCMD [\"c\"]\nFROM b\nENTRYPOINT [\"e\"]\n";
        assert_eq!(started(text).words, ["e"]);
        let text = "FROM a\nENTRYPOINT run it\nCMD [\"c\"]\n";
        assert_eq!(started(text).words, ["run", "it"]);
    }

    #[test]
    fn what_drops_the_environment_is_named() {
        let drops = |line: &str| started(&format!("FROM a\n{line}\n")).drops_environment();
        assert_eq!(drops("CMD [\"sudo\", \"-E\", \"p\"]").as_deref(), Some("sudo"));
        assert_eq!(drops("CMD exec su - app -c p").as_deref(), Some("su"));
        assert_eq!(drops("CMD su app -c p"), None);
        assert_eq!(drops("CMD env -i p").as_deref(), Some("env"));
        assert_eq!(drops("CMD env A=1 p"), None);
        assert_eq!(drops("CMD env -i LD_PRELOAD=a.so p"), None);
        assert_eq!(drops("CMD sudo env LD_PRELOAD=a.so p"), None);
        assert_eq!(drops("CMD sudo LD_PRELOAD=a.so p").as_deref(), Some("sudo"));
        assert_eq!(drops("CMD setpriv --reuid=app --reset-env p").as_deref(), Some("setpriv"));
        assert_eq!(drops("CMD setpriv --reuid=app p"), None);
        assert_eq!(drops("CMD gosu app p"), None);
        assert_eq!(drops("CMD su-exec app p"), None);
        assert_eq!(drops("ENTRYPOINT [\"/sbin/init\"]").as_deref(), Some("/sbin/init"));
        assert_eq!(drops("CMD [\"terraform\", \"init\"]"), None);
    }

    #[test]
    fn assignments_count_only_where_a_shell_reads_them() {
        let assigned = |line: &str| {
            let start = started(&format!("FROM a\n{line}\n"));
            start.assigned("LD_PRELOAD").map(str::to_owned)
        };
        assert_eq!(assigned("CMD LD_PRELOAD=a.so p").as_deref(), Some("a.so"));
        assert_eq!(
            assigned("CMD [\"sh\", \"-c\", \"export LD_PRELOAD=a.so; p\"]").as_deref(),
            Some("a.so")
        );
        assert_eq!(assigned("CMD [\"LD_PRELOAD=a.so\", \"p\"]"), None);
    }

    #[test]
    fn ebb_run_names_its_allocator() {
        let through = |line: &str| {
            let start = started(&format!("FROM a\n{line}\n"));
            start.through_ebb().map(str::to_owned)
        };
        assert_eq!(
            through("ENTRYPOINT [\"/usr/bin/ebb\", \"run\", \"--\", \"p\"]").as_deref(),
            Some("ebbmalloc")
        );
        assert_eq!(through("CMD ebb run -a jemalloc p").as_deref(), Some("jemalloc"));
        assert_eq!(through("CMD p"), None);
    }
}
