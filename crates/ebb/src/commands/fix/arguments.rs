//! The arguments of `ebb fix`.

use std::path::PathBuf;

/// The arguments of `ebb fix`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ebb fix Dockerfile                            show the change\n  \
                  ebb fix --write Dockerfile                    write it; ebb fix --undo Dockerfile takes it back\n  \
                  ebb fix --from results/results.json Dockerfile\n  \
                  ebb fix -a jemalloc compose.yaml --service web"
)]
pub struct Args {
    /// A Dockerfile, a compose file, a Kubernetes manifest, a systemd service, a Procfile, supervisor's configuration,
    /// an entrypoint script, or a Cargo.toml
    pub(super) file: PathBuf,

    /// ebbmalloc, jemalloc, mimalloc, tcmalloc, or glibc (no preload) [default: ebbmalloc]
    #[arg(long, short, value_name = "NAME", conflicts_with = "from")]
    pub(super) allocator: Option<String>,

    /// The results.json of a trial: takes the allocator and the settings that it recommends, or none
    #[arg(long, value_name = "FILE")]
    pub(super) from: Option<PathBuf>,

    /// Settings of the allocator, in its own words
    #[arg(long, value_name = "KEY:VALUE,...", conflicts_with = "from")]
    pub(super) conf: Vec<String>,

    /// A variable for the service
    #[arg(long, value_name = "KEY=VALUE", value_parser = crate::arguments::variable)]
    pub(super) env: Vec<(String, String)>,

    /// Write it; without this it is only shown
    #[arg(long)]
    pub(super) write: bool,

    /// Take back what the last `ebb fix --write` wrote
    #[arg(long, conflicts_with_all = ["write", "allocator", "from", "conf", "env"])]
    pub(super) undo: bool,

    /// The service of a compose file, the container of a manifest, the process type of a Procfile, the program
    /// of supervisor's configuration or of a Rust package; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub(super) service: Vec<String>,

    /// The stage of a Dockerfile to build [default: the last one]
    #[arg(long, value_name = "NAME")]
    pub(super) stage: Option<String>,

    /// Where the allocator's library is when the service runs [default: /usr/local/lib/libebbmalloc.so for
    /// ebbmalloc, the library's name for the others, which the loader looks up]
    #[arg(long, value_name = "PATH")]
    pub(super) library: Option<String>,

    /// For a manifest: an image that has /usr/local/lib/libebbmalloc.so, which an init container copies
    #[arg(long, value_name = "IMAGE")]
    pub(super) library_image: Option<String>,

    /// For a Cargo.toml: the path of the crate ebbmalloc [default: that of the checkout that ebb was built in]
    #[arg(long, value_name = "PATH")]
    pub(super) crate_path: Option<String>,

    /// One line of JSON
    #[arg(long)]
    pub(super) json: bool,
}
