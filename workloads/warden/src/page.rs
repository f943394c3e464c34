//! The dashboard as a page.

use crate::overview::Overview;
use crate::visitors::Visitor;
use maud::{DOCTYPE, Markup, html};

/// Paths that the page shows.
const TOP_PATHS: usize = 50;

/// The page of the figures and of the worst visitors, of `visitors` in all.
pub fn dashboard(overview: &Overview, visitors: usize, worst: &[(String, Visitor)]) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head { meta charset="utf-8"; title { "warden" } }
            body {
                h1 { "warden" }
                p { (overview.requests) " requests, " (visitors) " visitors remembered" }
                (counts("By rule", overview.by_rule.iter()))
                (counts("By status", overview.by_status.iter()))
                (counts("By hour", overview.by_hour.iter()))
                (counts("Most asked for", overview.top_paths(TOP_PATHS).iter().map(|(path, count)| (path, count))))
                h2 { "Worst visitors" }
                table {
                    @for (address, visitor) in worst {
                        tr {
                            td { (address) }
                            td { (visitor.requests) }
                            td { (visitor.broken) }
                            td { (visitor.last_at - visitor.first_at) " s" }
                            td { @for (name, value) in &visitor.headers { (name) ": " (value) " " } }
                            td { @for line in &visitor.evidence { p { (line) } } }
                        }
                    }
                }
            }
        }
    }
}

fn counts<K: maud::Render, C: maud::Render>(title: &str, rows: impl Iterator<Item = (K, C)>) -> Markup {
    html! {
        h2 { (title) }
        table {
            @for (name, count) in rows {
                tr { td { (name) } td { (count) } }
            }
        }
    }
}
