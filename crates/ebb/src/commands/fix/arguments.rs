//! The arguments of `ebb fix`.

use std::path::{Path, PathBuf};

/// Where ebbmalloc comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Channel {
    Local,
    Release,
}

/// Who evaluates an admission policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Policy {
    Kubernetes,
    Kyverno,
}

/// The arguments of `ebb fix`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb fix Dockerfile                            show the change\n  \
                  ebb fix --write Dockerfile                    write it; ebb fix --undo Dockerfile undoes it\n  \
                  ebb fix --from results/results.json Dockerfile\n  \
                  ebb fix -a jemalloc compose.yaml --service web\n  \
                  ebb fix --channel release Dockerfile          a line for pip, apt or COPY --from\n  \
                  ebb fix --policy --percent 10                 for kubectl apply -f -\n  \
                  ebb fix --policy --check http://localhost:9090 --selector 'namespace=\"shop\"'")]
pub struct Args {
    /// A Dockerfile, a compose file, a Kubernetes manifest, a systemd service, a Procfile, supervisor's configuration,
    /// an entrypoint script, a Cargo.toml, or a Python file that starts other programs
    #[arg(required_unless_present = "policy")]
    pub(super) file: Option<PathBuf>,

    /// Print an admission policy for a cluster instead: it puts ebbmalloc into pods with the label ebbmalloc=preload.
    /// Kyverno's form is for clusters before 1.36 [default: kubernetes]
    #[arg(long, value_enum, value_name = "ENGINE", num_args = 0..=1, default_missing_value = "kubernetes",
          conflicts_with_all = ["allocator", "from", "channel", "conf", "env", "write", "undo", "service",
          "child", "stage", "library", "crate_path"])]
    pub(super) policy: Option<Policy>,

    /// With --policy: only this share of the pods that have the label
    #[arg(long, value_name = "N", requires = "policy", default_value_t = 100, hide_default_value = true,
          value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(super) percent: u8,

    /// ebbmalloc, jemalloc, mimalloc, tcmalloc, or glibc (no preload) [default: ebbmalloc]
    #[arg(long, short, value_name = "NAME", conflicts_with = "from")]
    pub(super) allocator: Option<String>,

    /// Use the allocator and settings that a trial recommends (results.json of `ebb compare -o`)
    #[arg(long, value_name = "FILE")]
    pub(super) from: Option<PathBuf>,

    /// Take ebbmalloc from this ebb and its checkout (local), or from the packages, the image and the crate of its
    /// version (release)
    #[arg(long, value_enum, default_value_t = Channel::Local)]
    pub(super) channel: Channel,

    /// With --policy: do not print it; ask the Prometheus at this address what it would do for running containers, by what
    /// ebb agent knows of them
    #[arg(long, value_name = "URL", requires = "policy")]
    pub(super) check: Option<String>,

    /// With --check: labels of kube_pod_container_info, such as 'namespace="shop",pod=~"pay-.*"' [default: all]
    #[arg(long, value_name = "LABELS", requires = "check", default_value = "", hide_default_value = true)]
    pub(super) selector: String,

    /// Settings of the allocator, in the allocator's own syntax
    #[arg(long, value_name = "KEY:VALUE,...", conflicts_with = "from")]
    pub(super) conf: Vec<String>,

    /// An environment variable for the service
    #[arg(long, value_name = "KEY=VALUE", value_parser = crate::arguments::variable)]
    pub(super) env: Vec<(String, String)>,

    /// Write the change instead of showing it
    #[arg(long)]
    pub(super) write: bool,

    /// Undo the last `ebb fix --write`
    #[arg(long, conflicts_with_all = ["write", "allocator", "from", "conf", "env"])]
    pub(super) undo: bool,

    /// The service of a compose file, the container of a manifest, the process type of a Procfile, the program
    /// of supervisor's configuration or of a Rust package; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(super) service: Vec<String>,

    /// For a Python file: only calls that start this program [default: all calls that start a process]
    #[arg(long, value_name = "NAME")]
    pub(super) child: Option<String>,

    /// The stage of a Dockerfile to build [default: the last one]
    #[arg(long, value_name = "NAME")]
    pub(super) stage: Option<String>,

    /// Path of the allocator's library where the service runs [default: /usr/local/lib/libebbmalloc.so for
    /// ebbmalloc; for others the library's name, which the loader searches]
    #[arg(long, value_name = "PATH")]
    pub(super) library: Option<String>,

    /// For a manifest, a policy, and with --channel release for a Dockerfile: an image that contains
    /// /usr/local/lib/libebbmalloc.so
    #[arg(long, value_name = "IMAGE")]
    pub(super) library_image: Option<String>,

    /// For a Cargo.toml: the path of the crate ebbmalloc [default: the checkout in which ebb was built]
    #[arg(long, value_name = "PATH")]
    pub(super) crate_path: Option<String>,

    /// Print one line of JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl Args {
    /// The file; empty for a policy, which has none.
    pub(super) fn file(&self) -> &Path {
        self.file.as_deref().unwrap_or(Path::new(""))
    }
}
