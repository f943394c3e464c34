//! `ebb-manual FOLDER` writes the man pages of `ebb` and of each verb, and the completions of bash, zsh and fish, to the
//! places below FOLDER (`/usr`, say) where man and the shells look for them. Only `make dist` and packages use it: `ebb`
//! has no verb for it.
//!
//! The same command line gives the same bytes: no page has a date.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use roff::{Roff, roman};

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: ebb-manual FOLDER");
        return ExitCode::from(64);
    };
    let share = Path::new(&folder).join("share");
    match write_pages(&share.join("man/man1")).and_then(|()| write_completions(&share)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ebb-manual: {}: {error}", share.display());
            ExitCode::from(74)
        }
    }
}

/// ebb.1, and ebb-VERB.1 for each verb.
fn write_pages(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut ebb = ebb::cli::command().disable_help_subcommand(true);
    ebb.build();
    for verb in ebb.get_subcommands() {
        write_page(verb.clone(), folder)?;
    }
    write_page(ebb, folder)
}

/// The examples of a verb's help become a section with their line breaks; clap_mangen would fill them into a paragraph.
fn write_page(command: Command, folder: &Path) -> io::Result<()> {
    let examples = command.get_after_help().map(ToString::to_string);
    let source = format!("ebb {}", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.after_help(None::<&str>)).source(source).manual("ebb");
    let mut file = File::create(folder.join(page.get_filename()))?;
    page.render(&mut file)?;
    let Some(examples) = examples else { return Ok(()) };
    let (_heading, lines) = examples.split_once('\n').unwrap_or_default();
    let mut section = Roff::new();
    section.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in lines.lines() {
        section.text([roman(line.trim_start())]);
    }
    section.control("fi", []);
    section.to_writer(&mut file)
}

fn write_completions(share: &Path) -> io::Result<()> {
    for (shell, folder, name) in [
        (Shell::Bash, "bash-completion/completions", "ebb"),
        (Shell::Zsh, "zsh/site-functions", "_ebb"),
        (Shell::Fish, "fish/vendor_completions.d", "ebb.fish"),
    ] {
        let folder = share.join(folder);
        fs::create_dir_all(&folder)?;
        let mut file = File::create(folder.join(name))?;
        clap_complete::generate(shell, &mut ebb::cli::command(), "ebb", &mut file);
    }
    Ok(())
}
