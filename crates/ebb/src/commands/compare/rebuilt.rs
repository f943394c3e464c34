//! `--dockerfile`: what the trial recommends, written into a copy of the Dockerfile's folder, built, and tried once more in
//! place of the preload.

use super::image;
use crate::exit::{Exit, Failure};
use ebb_trial::container::{Container, Source};
use ebb_trial::engine::{self, Event};
use ebb_trial::launch::Launch;
use ebb_trial::results::{Trial, Variant, VerdictKind};
use ebb_trial::rounds::Rounds;
use ebb_trial::run::TrialContext;
use ebb_trial::summary;
use ebb_trial::variant::VariantSpec;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// A build may fetch packages.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// What is known before anything is started.
pub fn check(dockerfile: Option<&Path>, container: Option<&Container>) -> Result<(), Failure> {
    let Some(file) = dockerfile else { return Ok(()) };
    if !file.is_file() {
        return Err(Failure::at(Exit::Usage, file, "there is no such file"));
    }
    match container {
        Some(Container { source: Source::Image(..), .. }) => Ok(()),
        _ => Err(Failure::at(Exit::Usage, file, "only an image can be built and tried again")
            .remedy("give --image with the name of an image, not an unpacked root")),
    }
}

/// Adds the variant that the Dockerfile makes of the recommended one; the reason, where it cannot be tried.
pub fn add(
    trial: &mut Trial,
    dockerfile: &Path,
    context: &TrialContext,
    on_event: &mut dyn FnMut(Event),
) -> Result<(), String> {
    let recommended = Some(&trial.verdict).filter(|it| it.kind == VerdictKind::Recommend);
    let name = recommended.and_then(|verdict| verdict.variant.clone());
    let name = name.ok_or("the trial recommends nothing, so there is nothing to build")?;
    let allocator = trial.variants.iter().find(|it| it.name == name);
    let allocator = allocator.map_or(name.clone(), |it| it.allocator.clone());
    let spec = VariantSpec { name: format!("{name}, built"), allocator, ..VariantSpec::default() };
    let mut built = Variant::new(&spec.name, &spec.allocator);
    match try_out(trial, spec, dockerfile, context, on_event) {
        Ok(variants) => trial.variants.extend(variants),
        Err(reason) => {
            built.unavailable = Some(reason);
            trial.variants.push(built);
        }
    }
    summary::summarise(&mut trial.variants);
    Ok(())
}

fn try_out(
    trial: &Trial,
    spec: VariantSpec,
    dockerfile: &Path,
    context: &TrialContext,
    on_event: &mut dyn FnMut(Event),
) -> Result<Vec<Variant>, String> {
    let outer = context.container.ok_or("there is no container")?;
    let Source::Image(_, options) = &outer.source else {
        return Err("there is no image".to_owned());
    };
    let system = |error: std::io::Error| format!("a copy of its folder: {error}");
    let scratch = tempfile::tempdir().map_err(system)?;
    let copy = scratch.path().join("context");
    let run = |name: &str, command: &[&str], env: &BTreeMap<String, String>, limit: Duration| {
        let log = context.logs.folder().join(format!("{}.log", name.replace(' ', "-")));
        let mark = format!("{}-{}", std::process::id(), name.replace(' ', "-"));
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        let name = format!("the {name}");
        let launch = Launch::new(name, command, scratch.path(), env, &mark, log);
        let mut process = launch.start(&context.groups)?;
        process.finish(limit, &context.interrupt).map_err(|reason| {
            let last = process.last_lines().pop();
            last.map_or(reason.clone(), |line| format!("{reason}: {line}"))
        })
    };
    let folder = std::path::absolute(dockerfile).map_err(system)?;
    let file_name = folder.file_name().unwrap_or_default().to_os_string();
    let from = folder.parent().unwrap_or(Path::new("/")).display().to_string();
    let (to, file) = (copy.display().to_string(), copy.join(file_name).display().to_string());
    let none = BTreeMap::new();
    run("copy of the build context", &["cp", "-a", "--reflink=auto", &from, &to], &none, BUILD_LIMIT)?;

    let results = scratch.path().join("results.json");
    let text = serde_json::to_string(trial).map_err(|error| error.to_string())?;
    std::fs::write(&results, text).map_err(system)?;
    let ebb = std::env::current_exe().map_err(system)?.display().to_string();
    let state = scratch.path().join("state").display().to_string();
    let env = BTreeMap::from([("XDG_STATE_HOME".to_owned(), state)]);
    let results = results.display().to_string();
    let fix = [ebb.as_str(), "fix", "--write", "--from", &results, &file];
    run("change of the Dockerfile", &fix, &env, BUILD_LIMIT)?;

    let tag = format!("localhost/ebb-trial:{}", std::process::id());
    let engine = outer.engine.program.display().to_string();
    let build = [engine.as_str(), "build", "--tag", &tag, "--file", &file, &to];
    run("build of the image", &build, &none, BUILD_LIMIT)?;
    let container = Container {
        engine: outer.engine.clone(),
        source: Source::Image(tag.clone(), options.clone()),
        limits: outer.limits,
    };
    let context = TrialContext { container: Some(&container), ..context.clone() };
    let tried = image::as_built(spec, &context).map(|prepared| {
        let rounds = Rounds::Fixed(trial.repetitions);
        engine::run_all(&context, vec![prepared], rounds, on_event).variants
    });
    let remove = [engine.as_str(), "rmi", "--force", &tag];
    // A leftover image costs space and nothing else.
    let _ = run("removal of the built image", &remove, &none, BUILD_LIMIT);
    tried
}
