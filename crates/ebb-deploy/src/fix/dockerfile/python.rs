//! How an image installs Python packages. Pure.

use super::place::{At, leaves_root};

/// What puts packages elsewhere than where programs on the PATH are, and what is no plain list of commands.
const ELSEWHERE: [&str; 9] = ["<<", "`", "venv", "activate", "--target", " -t ", "--prefix", "--user ", "--root="];

/// Options that count for every package.
const FLAGS: [&str; 6] = ["--no-cache-dir", "--no-cache", "--break-system-packages", "--system", "-q", "--quiet"];

/// The same, with a value.
const INDEXES: [&str; 6] = ["-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--trusted-host"];

/// The command by which the image installs packages as root and for the interpreter on the PATH, with the options that
/// count for another package, too.
pub(super) fn install_command(at: &At<'_>) -> Option<String> {
    let pieces = at.chain.iter().rev().flat_map(|it| &it.pieces);
    let as_root = pieces.take_while(|it| it.at.end <= at.behind.at.end && !leaves_root(it));
    let runs = as_root.filter(|it| it.keyword == "RUN").map(|it| &at.text[it.at.clone()]);
    runs.filter(|text| !ELSEWHERE.iter().any(|it| text.contains(it))).find_map(of_run)
}

fn of_run(text: &str) -> Option<String> {
    let lines = text.lines().filter(|it| !it.trim_start().starts_with('#'));
    let words = lines.flat_map(str::split_whitespace).filter(|it| *it != "\\");
    let words: Vec<&str> = words.collect();
    let is_install = |it: &[&str]| matches!(it, ["pip" | "pip3", "install"]);
    let pip = words.windows(2).position(is_install)?;
    let start = match &words[..pip] {
        [.., python, "-m"] if python.starts_with("python") => pip - 2,
        [.., "-m"] => return None,
        [.., "uv"] => pip - 1,
        _ => pip,
    };
    let mut command = words[start..pip + 2].to_vec();
    let is_argument = |it: &&&str| !matches!(**it, "&&" | "||" | ";" | "|");
    let mut arguments = words[pip + 2..].iter().take_while(is_argument);
    while let Some(word) = arguments.next() {
        let (name, value) = word.split_once('=').map_or((*word, None), |it| (it.0, Some(it.1)));
        let is_index = INDEXES.contains(&name);
        if is_index || FLAGS.contains(&name) {
            command.push(word);
        }
        if is_index && value.is_none() {
            command.extend(arguments.next());
        }
    }
    Some(command.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_has_the_options_that_count_for_every_package() {
        for (run, expected) in [
            ("RUN pip install flask", Some("pip install")),
            ("RUN pip install --no-cache-dir -r requirements.txt", Some("pip install --no-cache-dir")),
            (
                "RUN apt-get update && pip3 install -q \\\n  # why\n  -i http://i/ -U a && x -q",
                Some("pip3 install -q -i http://i/"),
            ),
            (
                "RUN python3 -m pip install --index-url=http://i/ a",
                Some("python3 -m pip install --index-url=http://i/"),
            ),
            ("RUN --mount=type=cache,target=/c uv pip install --system a", Some("uv pip install --system")),
            ("RUN /opt/x/bin/python -m pip install a", None),
            ("RUN /opt/x/bin/pip install a", None),
            ("RUN uv sync", None),
        ] {
            assert_eq!(of_run(run).as_deref(), expected, "{run}");
        }
    }
}
