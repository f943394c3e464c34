//! A service of a compose file as options of `docker run`, for a trial of it.
//!
//! Used by `ebb compare --compose`. A trial leaves the machine as it is, so what a compose file shares with it is not
//! written: folders of this machine are read-only, and volumes are new and empty in each run. Pure.

use std::path::Path;

use crate::check::declared::yaml::{self, Node};

/// How a service is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Its image.
    pub image: String,
    /// Options of `run`.
    pub options: Vec<String>,
    /// In place of the image's arguments; none where the image's count.
    pub arguments: Vec<String>,
    /// What is different in a trial, one sentence each.
    pub notes: Vec<String>,
}

/// Keys whose text is the value of an option.
const TEXTS: [(&str, &str); 15] = [
    ("cpu_shares", "--cpu-shares"),
    ("cpus", "--cpus"),
    ("cpuset", "--cpuset-cpus"),
    ("hostname", "--hostname"),
    ("ipc", "--ipc"),
    ("mem_limit", "--memory"),
    ("mem_reservation", "--memory-reservation"),
    ("memswap_limit", "--memory-swap"),
    ("network_mode", "--network"),
    ("pid", "--pid"),
    ("pids_limit", "--pids-limit"),
    ("shm_size", "--shm-size"),
    ("stop_signal", "--stop-signal"),
    ("user", "--user"),
    ("working_dir", "--workdir"),
];
/// Keys with one text or a list of them, each the value of an option.
const LISTS: [(&str, &str); 9] = [
    ("cap_add", "--cap-add"),
    ("cap_drop", "--cap-drop"),
    ("devices", "--device"),
    ("dns", "--dns"),
    ("extra_hosts", "--add-host"),
    ("group_add", "--group-add"),
    ("security_opt", "--security-opt"),
    ("sysctls", "--sysctl"),
    ("tmpfs", "--tmpfs"),
];
const SWITCHES: [(&str, &str); 3] = [("init", "--init"), ("privileged", "--privileged"), ("read_only", "--read-only")];
/// Keys that are read here, or that make no difference to a trial.
const OTHERS: [&str; 28] = [
    "annotations", "attach", "build", "command", "container_name", "deploy", "depends_on", "develop", "entrypoint",
    "env_file", "environment", "expose", "healthcheck", "image", "labels", "logging", "oom_score_adj", "platform",
    "ports", "profiles", "pull_policy", "restart", "scale", "stdin_open", "stop_grace_period", "tty", "ulimits",
    "volumes",
];

/// The options of the service called `name`, or of the only one. `folder` is the file's, absolute; `variable` looks up what
/// `${NAME}` stands for.
pub fn of_compose(
    text: &str,
    name: Option<&str>,
    folder: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Options, String> {
    let documents = yaml::parse(text).map_err(|error| format!("it is not YAML: {error}"))?;
    let services = documents.roots.first().and_then(|root| root.get("services"));
    let services = services.ok_or("it has no services")?.pairs();
    let known: Vec<&str> = services.iter().filter_map(|(name, _)| name.text()).collect();
    let of = known.join(", ");
    let name = match (name, known.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, _) => return Err(format!("which service? It has {of}: name one by --service")),
    };
    let (_, node) = services
        .iter()
        .find(|(key, _)| key.text() == Some(name))
        .ok_or_else(|| format!("it has no service {name}; it has {of}"))?;
    let reader = Reader { node, folder, variable };
    reader.options(name).map_err(|reason| format!("service {name}: {reason}"))
}

struct Reader<'a> {
    node: &'a Node,
    folder: &'a Path,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Reader<'_> {
    fn options(&self, name: &str) -> Result<Options, String> {
        let mut of = Options::default();
        let image = self.node.get("image").ok_or("it has no image; build one, and name it by `image:`")?;
        of.image = self.text(image)?;
        for (key, value) in self.node.pairs() {
            self.key(key.text().unwrap_or_default(), value, &mut of)?;
        }
        let command = self.node.get("command").map(|node| self.words(node)).transpose()?;
        let entry = self.node.get("entrypoint").map(|node| self.words(node)).transpose()?;
        if let Some((program, rest)) = entry.as_deref().and_then(<[String]>::split_first) {
            of.options.extend(["--entrypoint".to_owned(), program.clone()]);
            of.arguments.extend_from_slice(rest);
        }
        of.arguments.extend(command.unwrap_or_default());
        if self.node.get("depends_on").is_some() {
            of.notes.push(format!("what {name} depends on is not started: start it first"));
        }
        Ok(of)
    }

    fn key(&self, key: &str, value: &Node, of: &mut Options) -> Result<(), String> {
        let option_of =
            |list: &[(&str, &'static str)]| list.iter().find(|(name, _)| *name == key).map(|(_, option)| *option);
        let mut add = |option: &str, value: String| of.options.extend([option.to_owned(), value]);
        if let Some(option) = option_of(&TEXTS) {
            add(option, self.text(value)?);
        } else if let Some(option) = option_of(&LISTS) {
            let separator = if key == "extra_hosts" { ":" } else { "=" };
            self.entries(value, separator)?.into_iter().for_each(|it| add(option, it));
        } else if let Some(option) = option_of(&SWITCHES) {
            if self.text(value)? == "true" {
                of.options.push(option.to_owned());
            }
        } else {
            match key {
                "environment" => self.entries(value, "=")?.into_iter().for_each(|it| add("--env", it)),
                "env_file" => self.env_files(value, &mut add)?,
                "ulimits" => self.ulimits(value, &mut add)?,
                "ports" => {
                    for port in value.items() {
                        add("--publish", self.port(port)?);
                    }
                }
                "volumes" => {
                    for volume in value.items() {
                        self.volume(volume, of)?;
                    }
                }
                "deploy" => self.limits(value, &mut add)?,
                _ if OTHERS.contains(&key) || key.starts_with("x-") => {}
                _ => of.notes.push(format!("`{key}` of the compose file is not in force")),
            }
        }
        Ok(())
    }

    fn env_files(&self, value: &Node, add: &mut dyn FnMut(&str, String)) -> Result<(), String> {
        let one = std::slice::from_ref(value);
        let files = if value.items().is_empty() { one } else { value.items() };
        for file in files {
            let path = self.text(file.get("path").unwrap_or(file))?;
            add("--env-file", self.folder.join(path).display().to_string());
        }
        Ok(())
    }

    fn ulimits(&self, value: &Node, add: &mut dyn FnMut(&str, String)) -> Result<(), String> {
        for (name, limit) in value.pairs() {
            let name = name.text().unwrap_or_default();
            let limit = match (limit.get("soft"), limit.get("hard")) {
                (Some(soft), Some(hard)) => format!("{}:{}", self.text(soft)?, self.text(hard)?),
                _ => self.text(limit)?,
            };
            add("--ulimit", format!("{name}={limit}"));
        }
        Ok(())
    }

    /// `deploy.resources.limits`.
    fn limits(&self, deploy: &Node, add: &mut dyn FnMut(&str, String)) -> Result<(), String> {
        let limits = deploy.get("resources").and_then(|it| it.get("limits"));
        for (key, option) in [("memory", "--memory"), ("cpus", "--cpus"), ("pids", "--pids-limit")] {
            if let Some(value) = limits.and_then(|limits| limits.get(key)) {
                add(option, self.text(value)?);
            }
        }
        Ok(())
    }

    fn port(&self, node: &Node) -> Result<String, String> {
        if node.pairs().is_empty() {
            return self.text(node);
        }
        let text = |key: &str| node.get(key).map(|it| self.text(it)).transpose();
        let target = text("target")?.ok_or("a port without a target")?;
        let parts = [text("host_ip")?, text("published")?, Some(target)];
        let port = parts.into_iter().flatten().collect::<Vec<_>>().join(":");
        Ok(text("protocol")?.map_or(port.clone(), |protocol| format!("{port}/{protocol}")))
    }

    fn volume(&self, node: &Node, of: &mut Options) -> Result<(), String> {
        let (source, target) = match node.pairs() {
            [] => {
                let text = self.text(node)?;
                let mut parts = text.split(':').map(str::to_owned);
                match (parts.next(), parts.next()) {
                    (Some(source), Some(target)) => (Some(source), target),
                    (target, _) => (None, target.unwrap_or_default()),
                }
            }
            _ => {
                let text = |key: &str| node.get(key).map(|it| self.text(it)).transpose();
                if text("type")?.as_deref() == Some("tmpfs") {
                    let target = text("target")?.ok_or("a volume without a target")?;
                    of.options.extend(["--tmpfs".to_owned(), target]);
                    return Ok(());
                }
                (text("source")?, text("target")?.ok_or("a volume without a target")?)
            }
        };
        let is_path = |it: &&String| it.starts_with(['/', '.', '~']);
        match source.as_ref().filter(is_path) {
            Some(path) if path.starts_with('~') => {
                return Err(format!("{path}: ebb does not look up home folders; write the path"));
            }
            Some(path) => {
                let path = self.folder.join(path);
                let from = path.display();
                of.options.extend(["--volume".to_owned(), format!("{from}:{target}:ro")]);
                of.notes.push(format!("{from} is read-only in the trial"));
            }
            None => {
                of.options.extend(["--volume".to_owned(), target.clone()]);
                if source.is_some() {
                    of.notes.push(format!("the volume at {target} is new and empty in each run"));
                }
            }
        }
        Ok(())
    }

    /// A mapping's pairs, with `separator` between key and value; a list's texts; or one text.
    fn entries(&self, node: &Node, separator: &str) -> Result<Vec<String>, String> {
        let pair = |(key, value): &(Node, Node)| {
            let key = key.text().unwrap_or_default();
            if value.is_empty() { Ok(key.to_owned()) } else { Ok(format!("{key}{separator}{}", self.text(value)?)) }
        };
        match (node.pairs(), node.items()) {
            ([], []) if node.is_empty() => Ok(Vec::new()),
            ([], []) => Ok(vec![self.text(node)?]),
            ([], items) => items.iter().map(|item| self.text(item)).collect(),
            (pairs, _) => pairs.iter().map(pair).collect(),
        }
    }

    /// A command as one text, which is split and never given to a shell, or as words.
    fn words(&self, node: &Node) -> Result<Vec<String>, String> {
        if !node.items().is_empty() || node.is_empty() {
            return node.items().iter().map(|item| self.text(item)).collect();
        }
        let text = self.text(node)?;
        shlex::split(&text).ok_or(format!("{text}: not a command (a quote may be open)"))
    }

    fn text(&self, node: &Node) -> Result<String, String> {
        let text = node.text().ok_or_else(|| format!("line {}: ebb reads no alias or list here", node.line))?;
        filled(text, self.variable).map_err(|reason| format!("line {}: {reason}", node.line))
    }
}

/// `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME-default}` filled in; `$$` is a dollar sign.
fn filled(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let is_name = |letter: char| letter == '_' || letter.is_ascii_alphanumeric();
        let inner = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let (inner, after) = match inner {
            Some(parts) => parts,
            None => rest.split_at(rest.find(|it| !is_name(it)).unwrap_or(rest.len())),
        };
        let end = inner.find(|it| !is_name(it)).unwrap_or(inner.len());
        let (name, operator) = inner.split_at(end);
        let value = variable(name);
        let value = match operator.strip_prefix(":-") {
            Some(default) => value.filter(|it| !it.is_empty()).or(Some(default.to_owned())),
            None => match operator.strip_prefix('-') {
                Some(default) => value.or(Some(default.to_owned())),
                None if operator.is_empty() => value,
                None => return Err(format!("${{{inner}}}: ebb does not know this form")),
            },
        };
        if name.is_empty() {
            return Err(format!("{text}: a dollar sign without a name ($$ is a dollar sign)"));
        }
        out.push_str(&value.ok_or(format!("the variable {name} is not set"))?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, name: Option<&str>) -> Result<Options, String> {
        let variable = |name: &str| (name == "TAG").then(|| "7".to_owned());
        of_compose(text, name, Path::new("/srv/app"), &variable)
    }

    /// A service with this key and its image, and the words that it becomes.
    #[test]
    fn each_key_becomes_options() {
        for (key, expected) in [
            ("mem_limit: 512m", "--memory 512m"),
            ("cpus: 0.5", "--cpus 0.5"),
            ("deploy: {resources: {limits: {memory: 1G, cpus: '2'}}}", "--memory 1G --cpus 2"),
            ("environment: {A: 1, B: 'x${TAG}', C: }", "--env A=1 --env B=x7 --env C"),
            ("environment: [A=1, B]", "--env A=1 --env B"),
            ("env_file: web.env", "--env-file /srv/app/web.env"),
            ("user: '1000:1000'", "--user 1000:1000"),
            ("working_dir: /srv", "--workdir /srv"),
            (
                "ports: ['8080:80', {target: 90, published: 9090, protocol: udp}]",
                "--publish 8080:80 --publish 9090:90/udp",
            ),
            ("network_mode: host", "--network host"),
            ("entrypoint: [/init, -x]\n    command: serve --port 80", "--entrypoint /init | -x serve --port 80"),
            ("command: ['sh', '-c', 'echo $$HOME']", "| sh -c echo $HOME"),
            (
                "volumes: ['./conf:/etc/app', 'data:/data', /cache]",
                "--volume /srv/app/./conf:/etc/app:ro --volume /data --volume /cache",
            ),
            ("tmpfs: /run", "--tmpfs /run"),
            ("read_only: true\n    init: false", "--read-only"),
            ("ulimits: {nproc: 5, nofile: {soft: 1, hard: 2}}", "--ulimit nproc=5 --ulimit nofile=1:2"),
            ("extra_hosts: {db: 10.0.0.1}", "--add-host db:10.0.0.1"),
            ("restart: always\n    labels: {a: b}", ""),
        ] {
            let text = format!("services:\n  web:\n    image: app:${{TAG}}\n    {key}\n");
            let options = of(&text, None).unwrap();
            assert_eq!(options.image, "app:7");
            let mut words = options.options.join(" ");
            if !options.arguments.is_empty() {
                words = format!("{words} | {}", options.arguments.join(" "));
            }
            assert_eq!(words.trim(), expected, "{key}");
        }
    }

    #[test]
    fn what_a_trial_does_differently_is_said() {
        let text = "services:\n  web:\n    image: a\n    volumes: [d:/d]\n    networks: [x]\n    depends_on: [db]\n";
        let notes = of(text, None).unwrap().notes.join("; ");
        for part in ["the volume at /d is new", "`networks` of", "depends on is not started"] {
            assert!(notes.contains(part), "{notes}");
        }
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        for (text, name, expected) in [
            ("services: {a: {image: x}, b: {image: y}}", None, "It has a, b"),
            ("services: {a: {image: x}}", Some("c"), "no service c; it has a"),
            ("services: {a: {build: .}}", None, "service a: it has no image"),
            ("services: {a: {image: 'x:$MISSING'}}", None, "line 1: the variable MISSING is not set"),
            ("services: {a: {image: '${TAG?no}'}}", None, "does not know this form"),
            ("services: {a: {image: '$'}}", None, "without a name"),
            ("services: {a: {image: x, volumes: ['~/x:/x']}}", None, "home folders"),
            ("a: [", None, "not YAML"),
            ("a: b", None, "no services"),
        ] {
            let error = of(text, name).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
