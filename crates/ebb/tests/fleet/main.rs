//! `ebb fleet` and `ebb compare --live --prometheus` against a real Prometheus that holds a made-up history.

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "shared by all test programs")]
mod harness;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use harness::{Finished, Subject, assert_refused, ebb, output};
use serde_json::Value;
use tempfile::TempDir;
use test_needs::needs;

/// Eight hours, a value every minute.
const MINUTES: usize = 480;

/// A container over time, in MB.
struct Group {
    node: &'static str,
    pod: &'static str,
    /// Number of the container: its id, and that of a pod's first container is the pod's.
    id: usize,
    pod_id: usize,
    from: usize,
    used: fn(usize) -> f64,
    returnable: fn(usize) -> f64,
    live: fn(usize) -> f64,
}

/// A burst of 20 minutes every two hours; what it freed is held until the next.
fn bursts(minute: usize, offset: usize) -> (f64, f64) {
    match (minute + 120 - offset) % 120 {
        0..20 => (400.0, 0.0),
        _ if minute < offset => (100.0, 0.0),
        _ => (100.0, 300.0),
    }
}

fn noise(minute: usize, of: usize) -> f64 {
    (minute * 7919 + of * 104_729) as f64 % 97.0 / 97.0
}

const GROUPS: &[Group] = &[
    Group::new("n1", "api-7f-a", [1, 1], [|at| sum(bursts(at, 10)), |at| bursts(at, 10).1, |_| 100.0]),
    Group::new("n1", "api-7f-b", [2, 2], [|at| sum(bursts(at, 70)), |at| bursts(at, 70).1, |_| 100.0]),
    Group::new("n1", "jobs-1", [3, 3], [|at| 150.0 + at as f64 % 240.0, |_| 1.0, |_| 150.0]),
    Group::new("n2", "", [4, 0], [|at| 500.0 + at as f64 / 6.0, |_| 0.0, |at| 400.0 + at as f64 / 6.0]),
    Group::new("n2", "back-5c-a", [5, 5], [|_| 300.0, |at| if at < 240 { 2.0 } else { 120.0 }, |_| 150.0]),
    Group::new("n3", "pay-1", [6, 6], [|at| 300.0 + 6.0 * noise(at, 1), |_| 0.0, |_| 250.0]),
    Group::new("n3", "pay-2", [7, 7], [|at| 300.0 + 6.0 * noise(at, 2), |_| 0.0, |_| 250.0]),
    Group::new("n3", "canary-1", [8, 8], [|at| 330.0 + 6.0 * noise(at, 3), |_| 0.0, |_| 270.0]),
    // The sandbox of a pod, which no container of kube-state-metrics has.
    Group::new("n1", "api-7f-a", [10, 1], [|_| 1.0, |_| 0.0, |_| 1.0]),
    // It took the place of the last one, and starts with much.
    Group {
        from: 465,
        ..Group::new(
            "n3",
            "canary-1",
            [9, 8],
            [|at| if at < 467 { 900.0 } else { 330.0 + 6.0 * noise(at, 4) }, |_| 0.0, |_| 270.0],
        )
    },
];

fn sum((live, held): (f64, f64)) -> f64 {
    live + held
}

impl Group {
    /// `ids` of the container and of the pod; used, returnable and live MB.
    const fn new(
        node: &'static str,
        pod: &'static str,
        [id, pod_id]: [usize; 2],
        [used, returnable, live]: [fn(usize) -> f64; 3],
    ) -> Self {
        Self { node, pod, id, pod_id, from: 0, used, returnable, live }
    }

    fn to(&self) -> usize {
        if self.id == 8 { 465 } else { MINUTES + 1 }
    }

    fn at(&self, minute: usize, of: fn(usize) -> f64) -> f64 {
        if (self.from..self.to()).contains(&minute) { of(minute) } else { 0.0 }
    }

    fn labels(&self) -> String {
        let (id, pod) = (format!("{:064x}", self.id), format!("uid-{}", self.pod_id));
        let (unit, id, pod, cgroup) = match self.pod {
            "" => ("redis.service", "", "", "/system.slice/redis.service".to_owned()),
            _ => (
                "",
                id.as_str(),
                pod.as_str(),
                format!("/kubepods.slice/kubepods-{pod}.slice/cri-containerd-{id}.scope"),
            ),
        };
        format!(
            "instance=\"{}:9464\",node=\"{0}\",cgroup=\"{cgroup}\",container_id=\"{id}\",pod_uid=\"{pod}\",unit=\"{unit}\"",
            self.node
        )
    }
}

/// The text from which promtool makes blocks; the last minute is the last whole one.
fn history() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let begin = now / 60 * 60 - 60 * MINUTES as u64;
    let mut text = String::new();
    let mut series = |name: &str, labels: &str, of: &dyn Fn(usize) -> Option<f64>| {
        for minute in 0..=MINUTES {
            if let Some(value) = of(minute) {
                let _ = writeln!(text, "{name}{{{labels}}} {value} {}", begin + 60 * minute as u64);
            }
        }
    };
    for group in GROUPS {
        let labels = group.labels();
        let is_there = |minute: usize| (group.from..group.to()).contains(&minute);
        for (name, of) in [("usage", group.used), ("returnable", group.returnable), ("live", group.live)] {
            let name = format!("ebb_group_{name}_bytes");
            series(&name, &labels, &|minute| is_there(minute).then(|| of(minute) * 1e6));
        }
        let kills = |minute: usize| f64::from(u8::from(group.id == 1 && minute >= 200));
        series("ebb_group_oom_kills_total", &labels, &|minute| is_there(minute).then(|| kills(minute)));
        let look = |minute: usize| (minute / 10 * 600) as f64;
        series("ebb_group_look_timestamp_seconds", &labels, &|minute| is_there(minute).then(|| look(minute)));
        for (allocator, in_charge, when) in [("ebbmalloc", "yes", 0..240), ("glibc", "no", 240..MINUTES + 1)] {
            let own = group.pod.starts_with("back");
            if own || allocator == "glibc" {
                let in_charge = if own { in_charge } else { "yes" };
                let labels = format!("{labels},allocator=\"{allocator}\",in_charge=\"{in_charge}\"");
                let is_now = |minute: usize| (!own || when.contains(&minute)) && is_there(minute);
                series("ebb_group_info", &labels, &|minute| is_now(minute).then_some(1.0));
            }
        }
        if group.pod.is_empty() || group.id == 10 {
            continue;
        }
        let (pod, id) = (group.pod, group.id);
        let name = format!("namespace=\"shop\",pod=\"{pod}\",container=\"app\"");
        // Two kube-state-metrics are usual, and make joins in PromQL fail.
        for instance in ["a", "b"] {
            let labels = format!(
                "{name},instance=\"{instance}\",container_id=\"containerd://{id:064x}\",uid=\"uid-{}\"",
                group.pod_id
            );
            series("kube_pod_container_info", &labels, &|minute| is_there(minute).then_some(1.0));
        }
        if id == 9 {
            continue;
        }
        let owner = pod.rsplit_once('-').unwrap().0;
        let labels = format!("namespace=\"shop\",pod=\"{pod}\",owner_kind=\"ReplicaSet\",owner_name=\"{owner}\"");
        series("kube_pod_owner", &labels, &|_| Some(1.0));
        series("kube_pod_container_resource_requests", &format!("{name},resource=\"memory\""), &|_| Some(1e9));
    }
    for name in ["api", "back"] {
        let set = if name == "api" { "api-7f" } else { "back-5c" };
        let labels = format!("namespace=\"shop\",replicaset=\"{set}\",owner_kind=\"Deployment\",owner_name=\"{name}\"");
        series("kube_replicaset_owner", &labels, &|_| Some(1.0));
    }
    series("kube_deployment_spec_replicas", "namespace=\"shop\",deployment=\"api\"", &|minute| {
        Some(if minute < 300 { 2.0 } else { 3.0 })
    });
    text + "# EOF\n"
}

/// A server, which ends with the test.
struct Prometheus {
    child: Child,
    url: String,
    _folder: TempDir,
}

impl Prometheus {
    fn start(history: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (file, data) = (folder.path().join("history"), folder.path().join("data"));
        std::fs::create_dir(&data).unwrap();
        if let Some(history) = history {
            std::fs::write(&file, history).unwrap();
            let mut command = Command::new("promtool");
            command.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(&file).arg(&data);
            let made = output(&mut command);
            assert!(made.status.success(), "{made:?}");
        }
        let config = folder.path().join("prometheus.yml");
        std::fs::write(&config, "global: {scrape_interval: 1m}\n").unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Prometheus { child, url: format!("http://127.0.0.1:{port}"), _folder: folder };
        let address = format!("{}/-/ready", server.url);
        harness::wait_until("Prometheus is ready", || ureq::get(&address).call().is_ok());
        server
    }

    fn ask(&self, line: &str) -> Finished {
        Finished::by(ebb().args(harness::words(line)).args(["--prometheus", &self.url]))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// By how much the nodes' peaks fall if these groups return what they hold, from the course itself.
fn replay(is_changed: impl Fn(&Group) -> bool) -> f64 {
    let mut nodes: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for minute in 0..=MINUTES {
        let mut now: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for group in GROUPS {
            let used = group.at(minute, group.used);
            let held = if is_changed(group) { group.at(minute, group.returnable) } else { 0.0 };
            let node = now.entry(group.node).or_default();
            *node = (node.0 + used, node.1 + used - held);
        }
        for (node, (before, after)) in now {
            let peak = nodes.entry(node).or_default();
            *peak = (peak.0.max(before), peak.1.max(after));
        }
    }
    nodes.values().map(|(before, after)| before - after).sum()
}

fn near(value: &Value, expected: f64) {
    let found = value.as_f64().unwrap_or(f64::NAN) / 1e6;
    assert!((found - expected).abs() <= 0.01 * expected + 0.5, "{found} instead of {expected}");
}

fn row<'a>(ranking: &'a Value, name: &str) -> &'a Value {
    let found = ranking["rows"].as_array().unwrap().iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {ranking:#}"))
}

#[test]
fn a_fleet_is_ranked_watched_and_compared() {
    needs!("prometheus");
    let server = Prometheus::start(Some(&history()));
    ranks(&server);
    watches(&server);
    compares(&server);
    refuses(&server);
}

fn ranks(server: &Prometheus) {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("fleet.html");
    let line = format!("fleet rank --for 8h --price 0.01 --json --page {}", page.display());
    let ranking = server.ask(&line).expect(0, &[], &[]).json();
    let api = row(&ranking, "shop/api");
    let of = |group: &&Group| group.pod.starts_with("api");
    let held: f64 = GROUPS.iter().filter(of).flat_map(|it| (0..=MINUTES).map(|at| (it.returnable)(at))).sum();
    near(&api["mean"]["bytes"], held / (MINUTES + 1) as f64);
    near(&api["own_peaks"]["bytes"], 0.0);
    near(&api["node_peaks"]["bytes"], replay(|group| group.pod.starts_with("api")));
    near(&ranking["all"]["node_peaks"]["bytes"], replay(|_| true));
    assert!(replay(|group| group.pod.starts_with("api")) > 100.0);
    near(&row(&ranking, "shop/back")["own_peaks"]["bytes"], 2.0);
    let figures = ["containers", "oom_kills", "oom_kills_holding", "scale_outs", "scale_outs_holding"];
    assert_eq!(figures.map(|name| api[name].as_f64().unwrap()), [3.0, 1.0, 1.0, 1.0, 1.0]);
    // 1000 - 1.15 x 400 MB, twice.
    assert!((api["saving"]["per_hour"].as_f64().unwrap() - 0.0108).abs() < 1e-4, "{api:#}");
    assert!(api["looks"].as_f64().unwrap() > 90.0 && api["share_of_time"].as_f64().unwrap() > 0.99);
    row(&ranking, "redis.service");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<wbr>api") && page.contains("class=\"plot wide\""));
    server.ask("fleet rank --for 8h --by node --top 1").expect(0, &["n1", "2 more rows", "4 containers"], &[]);
    server.ask("fleet rank --for 2d").expect(0, &["! the series begin"], &[]);
}

fn watches(server: &Prometheus) {
    let list = server.ask("fleet watch-list --for 8h --json").expect(13, &[], &[]).json();
    let found: Vec<(&str, &str)> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["name"].as_str().unwrap(), it["reason"].as_str().unwrap()))
        .collect();
    let expected =
        [("redis.service", "live-heap-grows"), ("shop/back", "not-in-charge"), ("shop/back", "retention-is-back")];
    assert_eq!(found, expected);
    server.ask("fleet watch-list --for 8h").expect(13, &["ebb check PID"], &[]);
}

fn compares(server: &Prometheus) {
    let sides = "old='{namespace=\"shop\",pod=~\"pay-.*\"}' new='{namespace=\"shop\",pod=~\"canary-.*\"}'";
    let folder = tempfile::tempdir().unwrap();
    let line = format!("compare --live {sides} --for 30m --every 60s --grace 3m -o {}", folder.path().display());
    server.ask(&line).expect(
        16,
        &["Verdict: old holds", "a container of pod uid-8 restarted"],
        &["worse: new holds more memory than old: +10 %"],
    );
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("memory charged to each replica") && !page.contains("Machine: ."), "{page}");
    // Longer than an address may be.
    let long = format!("uid-7|{}", "x".repeat(5000));
    let same = format!("old='{{pod_uid=\"uid-6\"}}' new='{{pod_uid=~\"{long}\"}}'");
    server.ask(&format!("compare --live {same} --for 30m --every 60s")).expect(0, &["No real difference"], &[]);
}

fn refuses(server: &Prometheus) {
    for (selector, code, words) in [
        ("{pod=\"gone\"}", 20, "nothing matches ebb_group_usage_bytes{pod=\"gone\"}"),
        ("{pod=~\"(\"}", 64, "status 400"),
        ("api", 64, "is no selector; write one such as"),
    ] {
        let line = format!("compare --live old='{{unit=\"redis.service\"}}' new='{selector}' --for 30m");
        assert_refused(&output(ebb().args(harness::words(&line)).args(["--prometheus", &server.url])), code, &[words]);
    }
    let empty = Prometheus::start(None);
    for verb in ["rank", "watch-list"] {
        let mut command = ebb();
        command.args(["fleet", verb, "--prometheus", &empty.url]);
        assert_refused(
            &output(&mut command),
            20,
            &["has no ebb_group_usage_bytes in the last 7days; does ebb agent run"],
        );
        let mut command = ebb();
        command.args(["fleet", verb, "--prometheus", &format!("{}/graph", empty.url)]);
        assert_refused(&output(&mut command), 64, &["is a part of the path missing"]);
    }
}

#[test]
fn folders_of_snaps_are_ranked_as_well() {
    let code = "kept = [b'x' * 2000 for _ in range(40000)]; del kept[:-1]; print('ready', flush=True); input()";
    let service = Subject::start(Command::new("python3").args(["-c", code]));
    let folder = tempfile::tempdir().unwrap();
    let refused = output(ebb().args(["fleet", "rank", "--snaps"]).arg(folder.path()));
    assert_refused(&refused, 20, &["no records and no looks of ebb snap; ebb snap TARGET --to"]);
    std::fs::create_dir(folder.path().join("app")).unwrap();
    for name in ["1.json", "2.json"] {
        let file = folder.path().join("app").join(name);
        Finished::by(ebb().args(["snap", &service.pid().to_string(), "-o"]).arg(file)).expect(0, &[], &[]);
    }
    let rank = Finished::by(ebb().args(["fleet", "rank", "--json", "--for", "10m", "--snaps"]).arg(folder.path()));
    let ranking = rank.expect(0, &[], &[]).json();
    let app = row(&ranking, "app");
    assert_eq!((app["looks"].as_f64(), app["share_looked"].as_f64()), (Some(2.0), Some(1.0)));
    std::fs::write(folder.path().join("wrong.json"), "{}").unwrap();
    let refused = output(ebb().args(["fleet", "rank", "--snaps"]).arg(folder.path()));
    assert_refused(&refused, 64, &["wrong.json", "it must be a file of `ebb snap`"]);
}

#[test]
fn wrong_addresses_are_refused_in_one_line() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (line, code, words) in [
        (format!("--prometheus http://{free}"), 75, "is that the address of a running Prometheus?"),
        ("--prometheus https://localhost".to_owned(), 31, "ebb speaks http, not https; forward a local port"),
        ("--prometheus localhost:9090".to_owned(), 64, "not an address such as"),
        ("--prometheus http://localhost --token-file /nowhere/token".to_owned(), 64, "/nowhere/token"),
        ("--snaps /nowhere".to_owned(), 64, "/nowhere"),
    ] {
        assert_refused(&output(ebb().args(harness::words(&format!("fleet rank {line}")))), code, &[words]);
    }
    let line = "compare --prometheus http://localhost --live a='{a=\"b\"}' b='{}' --for 9999d";
    let finished = Finished::by(ebb().args(harness::words(line)));
    finished.expect(64, &[], &["--for is too long: at most 366d"]);
}
