//! What an image starts: the program behind `ENTRYPOINT` and `CMD`, and whether something on the way to
//! it drops the environment. Pure.

use super::image::{Placed, Stage, Words, file_name};

/// What is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// All words, those of a shell's line split as a shell would.
    pub words: Vec<String>,
    /// Whether a shell reads them.
    pub by_shell: bool,
    /// The line of the instruction that starts it.
    pub line: usize,
}

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
    Some(Start {
        words,
        by_shell,
        line: first.line,
    })
}

impl Start {
    /// Assignments in front of the program in a shell's line, `export NAME=value;` included.
    pub fn assigned(&self, variable: &str) -> Option<&str> {
        if !self.by_shell && !self.runs_shell() {
            return None;
        }
        let start = format!("{variable}=");
        self.pieces().find_map(|word| word.strip_prefix(&start))
    }

    /// The words, those of `sh -c TEXT` split, too.
    fn pieces(&self) -> impl Iterator<Item = &str> {
        self.words
            .iter()
            .flat_map(|word| word.split([' ', ';', '\n']))
            .filter(|word| !word.is_empty())
    }

    fn runs_shell(&self) -> bool {
        self.words
            .first()
            .is_some_and(|it| matches!(file_name(it), "sh" | "bash" | "dash" | "ash"))
    }

    /// Whether it goes through `ebb run`, and the allocator that is named there.
    pub fn through_ebb(&self) -> Option<&str> {
        let pieces: Vec<&str> = self.pieces().collect();
        let at = pieces
            .windows(2)
            .position(|pair| file_name(pair[0]) == "ebb" && pair[1] == "run")?;
        let options = &pieces[at + 2..];
        let named = options
            .windows(2)
            .find(|pair| matches!(pair[0], "-a" | "--allocator"));
        let joined = options
            .iter()
            .find_map(|it| it.strip_prefix("--allocator="));
        Some(named.map(|pair| pair[1]).or(joined).unwrap_or("ebbmalloc"))
    }

    /// The program that drops the environment, and how it does.
    pub fn drops_environment(&self) -> Option<String> {
        let pieces: Vec<&str> = self.pieces().collect();
        let after = |at: usize| pieces[at + 1..].iter().take_while(|it| it.starts_with('-'));
        for (at, piece) in pieces.iter().enumerate() {
            let has = |wanted: &[&str]| after(at).any(|it| wanted.contains(it));
            let drops = match file_name(piece) {
                // Even -E leaves out LD_*: only env_keep in sudoers passes it.
                "sudo" | "doas" => true,
                "setpriv" => has(&["--reset-env"]),
                "su" | "runuser" => has(&["-", "-l", "--login"]),
                "env" => {
                    has(&["-", "-i", "--ignore-environment"])
                        || pieces[at..].windows(2).any(|it| it == ["-u", "LD_PRELOAD"])
                }
                "cron" | "crond" => true,
                "systemd" => true,
                "init" => at == 0,
                "unset" => pieces.get(at + 1) == Some(&"LD_PRELOAD"),
                _ => false,
            };
            // `env -i LD_PRELOAD=... program` starts that with it.
            let is_set_again = pieces[at..].iter().any(|it| file_name(it) == "env")
                && pieces[at..].iter().any(|it| it.starts_with("LD_PRELOAD="));
            if drops && !is_set_again {
                return Some((*piece).to_owned());
            }
        }
        None
    }

    /// Whether `path` is one of the programs that are started.
    pub fn names(&self, path: &str) -> bool {
        self.pieces().any(|piece| {
            piece == path || !piece.contains('/') && file_name(path) == piece || {
                piece
                    .strip_prefix("./")
                    .is_some_and(|it| file_name(path) == it)
            }
        })
    }
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
        assert_eq!(
            drops("CMD [\"sudo\", \"-E\", \"p\"]").as_deref(),
            Some("sudo")
        );
        assert_eq!(drops("CMD exec su - app -c p").as_deref(), Some("su"));
        assert_eq!(drops("CMD su app -c p"), None);
        assert_eq!(drops("CMD env -i p").as_deref(), Some("env"));
        assert_eq!(drops("CMD env A=1 p"), None);
        assert_eq!(drops("CMD env -i LD_PRELOAD=a.so p"), None);
        assert_eq!(drops("CMD sudo env LD_PRELOAD=a.so p"), None);
        assert_eq!(drops("CMD sudo LD_PRELOAD=a.so p").as_deref(), Some("sudo"));
        assert_eq!(
            drops("CMD setpriv --reuid=app --reset-env p").as_deref(),
            Some("setpriv")
        );
        assert_eq!(drops("CMD setpriv --reuid=app p"), None);
        assert_eq!(drops("CMD gosu app p"), None);
        assert_eq!(drops("CMD su-exec app p"), None);
        assert_eq!(
            drops("ENTRYPOINT [\"/sbin/init\"]").as_deref(),
            Some("/sbin/init")
        );
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
        assert_eq!(
            through("CMD ebb run -a jemalloc p").as_deref(),
            Some("jemalloc")
        );
        assert_eq!(through("CMD p"), None);
    }
}
