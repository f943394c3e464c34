//! A report of orders: parsed from JSON, grouped, answered as JSON; a few of each are kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use axum::extract::Path;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

#[cfg(feature = "ebbmalloc")]
#[global_allocator]
static GLOBAL: ebbmalloc::Ebbmalloc = ebbmalloc::Ebbmalloc;

static KEPT: Mutex<BTreeMap<u64, Vec<Value>>> = Mutex::new(BTreeMap::new());

async fn report(Path(day): Path<u64>) -> Json<HashMap<String, usize>> {
    let document: Value = (0..20_000u64)
        .map(|i| {
            let chance = (i + day * 7919).wrapping_mul(6_364_136_223_846_793_005) >> 33;
            json!({"id": i, "customer": format!("customer {}", chance % 5000), "note": "x".repeat(20 + (chance % 880) as usize)})
        })
        .collect();
    let orders: Vec<Value> = serde_json::from_str(&document.to_string()).expect("it is an array");
    let mut groups = HashMap::new();
    for order in &orders {
        *groups.entry(order["customer"].to_string()).or_default() += order["note"].as_str().map_or(0, str::len);
    }
    let few = orders.into_iter().step_by(400).collect();
    KEPT.lock().expect("no handler panics").insert(day % 50, few);
    Json(groups)
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let port = std::env::var("PORT").unwrap_or("8000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    axum::serve(listener, Router::new().route("/report/{day}", get(report))).await
}
