//! An agent on a server: it logs every request that reaches it, judges who sends them, and shows a
//! dashboard made from its log of JSON lines.
//!
//! One source, three builds: without a feature on the system's allocator, with `ebbmalloc` or
//! `jemalloc` on that one. How its log is read is a setting: whole, as it was when the case happened,
//! or only what is new (`--read tail`), as it was repaired.

#[cfg(feature = "ebbmalloc")]
#[global_allocator]
static GLOBAL: ebbmalloc::Ebbmalloc = ebbmalloc::Ebbmalloc;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

use clap::Parser;
use std::process::ExitCode;
use std::sync::Arc;

mod journal;
mod memory;
mod overview;
mod page;
mod settings;
mod visitors;
mod web;

#[tokio::main]
async fn main() -> ExitCode {
    match serve(settings::Settings::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("warden: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(settings: settings::Settings) -> Result<(), String> {
    let address = (std::net::Ipv4Addr::LOCALHOST, settings.port);
    let agent = Arc::new(web::Agent::open(&settings)?);
    let listener =
        tokio::net::TcpListener::bind(address).await.map_err(|error| format!("port {}: {error}", settings.port))?;
    axum::serve(listener, web::routes(agent))
        .with_graceful_shutdown(until_stopped())
        .await
        .map_err(|error| error.to_string())
}

/// SIGTERM or Ctrl-C.
async fn until_stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        Err(_) => std::future::pending().await,
    }
}
