//! Whether the program that an image starts takes a library at all. Pure.

use super::asked::Image;
use super::image::Stage;
use crate::check::base::Base;
use crate::check::finding::{Finding, Id};
use crate::check::library::file_name;

impl Image<'_> {
    /// Whether the program that is started takes a library at all.
    pub(super) fn program(&self) -> Vec<Finding> {
        let Some(start) = &self.start else {
            return Vec::new();
        };
        for stage in &self.chain {
            for run in &stage.runs {
                let gains = run.value.contains("setcap ")
                    || run.value.contains("chmod u+s")
                    || run.value.contains("chmod +s")
                    || run.value.contains("chmod 4");
                let mut words = run.value.split([' ', '\n', ';', '&', '\\']);
                if gains && words.any(|word| word.contains('/') && start.names(word)) {
                    let what = "the program gains rights when it starts (set-uid or setcap), so its loader \
                                ignores LD_PRELOAD unless the caller has them already";
                    return vec![self.at(run.line, Id::SecureMode, what.to_owned())];
                }
            }
            for copy in &stage.copies {
                let Some(from) = copy.value.from.as_deref().and_then(|it| self.stages.named(it))
                else {
                    continue;
                };
                let started = |name: &str| start.names(&target_of(&copy.value.to, name));
                if copy.value.sources.iter().any(|source| started(source))
                    && let Some((id, why)) = kind_of_build(&from)
                {
                    let what = format!("the program comes from the stage {}, {why}", from[0].base);
                    return vec![self.at(copy.line, id, what)];
                }
            }
        }
        Vec::new()
    }
}

fn target_of(to: &str, source: &str) -> String {
    if to.ends_with('/') || to == "." {
        format!("{to}{}", file_name(source))
    } else {
        to.to_owned()
    }
}

/// What kind of program a stage builds, as far as its commands tell.
fn kind_of_build(chain: &[&Stage]) -> Option<(Id, &'static str)> {
    let lowest = chain.last()?;
    if Base::parse(&lowest.base).is_go() {
        return Some((Id::AllocatorInside, "which builds with Go: its heap is not malloc's"));
    }
    let runs = || chain.iter().flat_map(|stage| &stage.runs);
    if runs().any(|run| run.value.contains("linux-musl") || run.value.contains("crt-static")) {
        return Some((
            Id::StaticProgram,
            "which builds a static program: nothing can be preloaded into it",
        ));
    }
    None
}
