//! `--image`, `--compose`: the service in a container of its own image. The engine and the image are found before anything
//! is started; then the service is started once as it is, and its processes say which allocators can be tried.

mod seen;

use crate::exit::{Exit, Failure};
use crate::terminal;
use ebb_deploy::options;
use ebb_trial::container::{Bundle, Container, Engine, NoImage, Source, choose};
use ebb_trial::results::Limits;
use ebb_trial::run::{TrialContext, first_look};
use ebb_trial::template;
use ebb_trial::variant::{Prepared, VariantSpec};
use seen::Seen;
use std::path::{Path, PathBuf};

/// Where the service comes from, in place of this machine.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "A service in its image")]
pub struct Args {
    /// Run the service from this image, with its entry point, environment, user and folder. What begins with / or . is an
    /// unpacked root, or the folder of an OCI bundle. Words after `--` are the arguments of the image.
    #[arg(long, value_name = "IMAGE|ROOT")]
    image: Option<String>,

    /// Program that runs the container: docker, podman or nerdctl for an image, runc or crun for a root. Default: the
    /// first on PATH that has the image.
    #[arg(long, value_name = "PROGRAM")]
    engine: Option<String>,

    /// Take image, command and options from a service of this compose file. The trial changes no volume and no folder.
    #[arg(long, value_name = "FILE", conflicts_with = "image")]
    compose: Option<PathBuf>,

    /// The service of the compose file, if it has several.
    #[arg(id = "compose_service", long = "service", value_name = "NAME", requires = "compose")]
    service: Option<String>,

    /// Build the recommended change of this Dockerfile, in a copy of its folder, and try the image that it makes once more.
    #[arg(long, value_name = "FILE")]
    pub(super) dockerfile: Option<PathBuf>,
}

/// An image, and what a compose file says of it.
#[derive(Debug, Default)]
pub struct Requested {
    /// The image or root.
    pub image: String,
    /// In place of the image's arguments.
    pub arguments: Vec<String>,
    options: Vec<String>,
}

impl Requested {
    /// An image alone.
    pub fn of(image: String) -> Requested {
        Requested { image, ..Requested::default() }
    }

    /// Its arguments, in which a brace is a brace.
    pub fn arguments_of_template(&self) -> Vec<String> {
        self.arguments.iter().map(|word| template::keep_known(word)).collect()
    }
}

impl Args {
    /// The image that was named, by itself or by a compose file.
    pub fn requested(&self) -> Result<Option<Requested>, Failure> {
        let Some(file) = &self.compose else {
            let image = self.image.clone();
            return Ok(image.map(Requested::of));
        };
        let wrong = |error: &dyn std::fmt::Display| Failure::at(Exit::Usage, file, error);
        let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
        let path = std::path::absolute(file).map_err(|error| wrong(&error))?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        let beside = std::fs::read_to_string(folder.join(".env")).unwrap_or_default();
        let of_file = |name: &str| {
            let mut pairs = beside.lines().filter_map(|line| line.split_once('='));
            let value = pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim());
            value.map(|value| value.trim_matches(['"', '\'']).to_owned())
        };
        let variable = |name: &str| std::env::var(name).ok().or_else(|| of_file(name));
        let of =
            options::of_compose(&text, self.service.as_deref(), folder, &variable).map_err(|error| wrong(&error))?;
        for note in of.notes {
            terminal::warn(&format!("note: {note}"));
        }
        Ok(Some(Requested { image: of.image, arguments: of.arguments, options: of.options }))
    }

    /// What the service runs in; `None` for a service of this machine.
    pub fn container(
        &self,
        requested: Option<Requested>,
        has_arguments: bool,
        limits: Limits,
    ) -> Result<Option<Container>, Failure> {
        let Some(Requested { image, options, .. }) = requested else {
            return match &self.engine {
                Some(engine) => Err(Failure::usage(format!("--engine {engine}: no image is given"))
                    .remedy("give --image IMAGE, or the image of the workload's service")),
                None => Ok(None),
            };
        };
        let image = image.as_str();
        let is_root = self.compose.is_none() && image.starts_with(['/', '.']);
        let engines = Engine::all(self.engine.as_deref(), &ebb_process::program::search_path(), is_root);
        let engines = engines.map_err(|reason| match self.engine {
            Some(_) => Failure::usage(reason),
            None => Failure::new(Exit::Missing, reason).remedy("install one, or name one by --engine"),
        })?;
        let (engine, source) = match is_root {
            true => bundle(engines, image, has_arguments)?,
            false => named(engines, image, options)?,
        };
        let container = Container { engine, source, limits };
        for command in container.left_over() {
            terminal::warn(&format!("an earlier trial that was killed left a container: {command}"));
        }
        Ok(Some(container))
    }
}

fn bundle(engines: Vec<Engine>, path: &str, has_arguments: bool) -> Result<(Engine, Source), Failure> {
    let bundle = Bundle::read(Path::new(path)).map_err(Failure::usage)?;
    if !has_arguments && !bundle.has_command() {
        let what = format!("{path} is a root without a configuration, so its service is not known");
        return Err(Failure::usage(what).remedy("give the service's command after `--`"));
    }
    if !nix::unistd::Uid::effective().is_root() {
        let what = format!("{path}: only root can run an unpacked root");
        return Err(Failure::new(Exit::Permission, what).remedy("run ebb as root"));
    }
    let engine = engines.into_iter().next();
    let engine = engine.ok_or_else(|| Failure::new(Exit::Missing, "no engine was found"))?;
    Ok((engine, Source::Bundle(bundle)))
}

fn named(engines: Vec<Engine>, image: &str, options: Vec<String>) -> Result<(Engine, Source), Failure> {
    let (engine, theirs) = choose(engines, image).map_err(|error| match error {
        NoImage::Unknown(said) => {
            let what = format!("no engine has the image {image} ({said})");
            Failure::new(Exit::Missing, what).remedy("pull or build it first; a folder begins with / or .")
        }
        NoImage::NoRights(said) => {
            let what = format!("the image {image} cannot be read ({said})");
            Failure::new(Exit::Permission, what).remedy("run ebb as a user who may use the engine")
        }
        NoImage::NoEngine(said) => {
            let what = format!("no engine answers about the image {image} ({said})");
            Failure::new(Exit::Missing, what).remedy("start it, or name another one by --engine")
        }
    })?;
    let ours = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    if !theirs.is_empty() && theirs != ours {
        let what = format!("the image {image} is for {theirs}, this machine is {ours}");
        return Err(Failure::new(Exit::Unsupported, what)
            .remedy("an emulator's memory is not the service's; use an image of this architecture"));
    }
    Ok((engine, Source::Image(image.to_owned(), options)))
}

/// The variants, with what each needs in the container; they stay `in_order` if the user named them. `folder` gets copies of
/// libraries.
pub fn resolve_all(
    specs: Vec<VariantSpec>,
    in_order: bool,
    trial: &TrialContext,
    folder: &Path,
) -> Result<Vec<Prepared>, Failure> {
    let prepared = first_look(trial, |pid| {
        let seen = Seen::of(pid)?;
        terminal::warn(&format!("in the image: {}", seen.in_words()));
        let specs = if in_order { specs } else { seen.own_first(specs) };
        Ok(specs.into_iter().map(|spec| seen.resolve(spec, trial, folder)).collect())
    });
    match prepared {
        Ok(prepared) => prepared.map_err(|reason: String| Failure::new(Exit::NotEnoughEvidence, reason)),
        Err(_) if trial.interrupt.is_set() => {
            Err(Failure::new(Exit::Interrupted, "interrupted while the service was looked at: nothing was measured"))
        }
        Err((reason, last_lines)) => {
            for line in &last_lines {
                terminal::warn(&format!("| {line}"));
            }
            let failure = Failure::new(Exit::Missing, format!("first look at the image: {reason}"));
            Err(match last_lines.is_empty() {
                true => failure,
                false => failure.remedy("the lines above are the end of its output"),
            })
        }
    }
}

/// The variant of an image that was built with its allocator, which has to be in charge there.
pub fn as_built(spec: VariantSpec, trial: &TrialContext) -> Result<Prepared, String> {
    let looked = first_look(trial, |pid| {
        let seen = Seen::of(pid)?;
        let decay = ebb_allocators::decay(&spec.allocator, |name| seen.env.get(name).cloned());
        let library = seen.own_library();
        Ok(Prepared { decay, library, is_own: true, ..Prepared::as_it_is(spec) })
    });
    looked.map_err(|(reason, mut last)| match last.pop() {
        Some(line) => format!("{reason}: {line}"),
        None => reason,
    })?
}
