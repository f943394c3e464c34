//! Whether the program that an image starts takes a library at all. Pure.

use super::asked::Image;
use super::image::Stage;
use crate::check::base::Base;
use crate::check::finding::{Finding, Id};

impl Image<'_> {
    pub(super) fn program(&self) -> Vec<Finding> {
        let Some(start) = &self.start else {
            return Vec::new();
        };
        for stage in &self.chain {
            for run in &stage.runs {
                let gains = ["setcap ", "chmod u+s", "chmod +s", "chmod 4"];
                let gains = gains.iter().any(|it| run.value.contains(it));
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
                let started = |source: &String| start.names(&copy.value.target_of(source));
                if copy.value.sources.iter().any(started)
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

/// What kind of program a stage builds, as far as its commands tell.
fn kind_of_build(chain: &[&Stage]) -> Option<(Id, &'static str)> {
    let lowest = chain.last()?;
    if Base::parse(&lowest.base).is_go() {
        return Some((Id::AllocatorInside, "which builds with Go: its heap is not malloc's"));
    }
    let runs = || chain.iter().flat_map(|stage| &stage.runs);
    if runs().any(|run| run.value.contains("linux-musl") || run.value.contains("crt-static")) {
        let why = "which builds a static program: nothing can be preloaded into it";
        return Some((Id::StaticProgram, why));
    }
    None
}
