//! What is started, as words, and whether something on the way to the program drops the environment. Pure.

use ebb_allocators::Allocator;

use super::library::file_name;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// All words, those of a shell's line split as a shell would.
    pub words: Vec<String>,
    pub by_shell: bool,
    pub line: usize,
}

/// The words of a line without a shell, as far as quotes go.
pub fn words(text: &str) -> Vec<String> {
    shlex::split(text).unwrap_or_else(|| text.split_whitespace().map(str::to_owned).collect())
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
        self.words.iter().flat_map(|word| word.split([' ', ';', '\n'])).filter(|word| !word.is_empty())
    }

    fn runs_shell(&self) -> bool {
        self.words.first().is_some_and(|it| matches!(file_name(it), "sh" | "bash" | "dash" | "ash"))
    }

    /// Whether it goes through `ebb run`, and the allocator that is named there.
    pub fn through_ebb(&self) -> Option<&str> {
        let pieces: Vec<&str> = self.pieces().collect();
        let at = pieces.windows(2).position(|pair| file_name(pair[0]) == "ebb" && pair[1] == "run")?;
        let options = &pieces[at + 2..];
        let named = options.windows(2).find(|pair| matches!(pair[0], "-a" | "--allocator"));
        let joined = options.iter().find_map(|it| it.strip_prefix("--allocator="));
        Some(named.map(|pair| pair[1]).or(joined).unwrap_or(Allocator::Ebbmalloc.name()))
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
                piece.strip_prefix("./").is_some_and(|it| file_name(path) == it)
            }
        })
    }
}
