//! Which package of this machine's distribution has an allocator, as the command that installs it.

use std::fs;

/// Package names by family of distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packages {
    /// Debian up to 12, Ubuntu up to 23.10.
    pub debian: &'static str,
    /// Debian from 13, Ubuntu from 24.04, where libraries were renamed for 64-bit time.
    pub debian_t64: &'static str,
    /// Alpine.
    pub alpine: &'static str,
    /// Fedora, and with EPEL its relatives.
    pub fedora: &'static str,
    /// Arch.
    pub arch: &'static str,
    /// Other packages, of any distribution, which bring the library along.
    pub others: &'static [&'static str],
}

impl Packages {
    /// No distribution has it.
    pub const NONE: Packages = Packages { debian: "", debian_t64: "", alpine: "", fedora: "", arch: "", others: &[] };

    /// Every name, each once.
    pub fn all(&self) -> Vec<&'static str> {
        let mut names = vec![self.debian, self.debian_t64, self.alpine, self.fedora, self.arch];
        names.retain(|name| !name.is_empty());
        names.dedup();
        names
    }

    /// Every package after whose installation the library is there.
    pub fn all_that_bring_it(&self) -> Vec<&'static str> {
        [self.all().as_slice(), self.others].concat()
    }

    /// The command that installs it here; all the names where the distribution is not known.
    pub fn install_command(&self) -> String {
        let text = fs::read_to_string("/etc/os-release")
            .or_else(|_| fs::read_to_string("/usr/lib/os-release"))
            .unwrap_or_default();
        self.install_command_on(&text)
    }

    fn install_command_on(&self, os_release: &str) -> String {
        let field = |key: &str| {
            os_release
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
                .map(|value| value.trim_matches(['"', '\'']))
                .unwrap_or_default()
        };
        let (id, like) = (field("ID"), field("ID_LIKE"));
        let is = |name: &str| id == name || like.split_whitespace().any(|word| word == name);
        if is("ubuntu") || is("debian") {
            let renamed_from = if is("ubuntu") { 24 } else { 13 };
            // Debian's testing has no number and is newer than every release with one.
            let major = field("VERSION_ID").split('.').next().unwrap_or_default();
            let renamed = major.parse::<u32>().map_or(true, |it| it >= renamed_from);
            let package = if renamed { self.debian_t64 } else { self.debian };
            format!("apt-get install {package}")
        } else if is("alpine") {
            format!("apk add {}", self.alpine)
        } else if is("fedora") || is("rhel") {
            format!("dnf install {}", self.fedora)
        } else if is("arch") {
            format!("pacman -S {}", self.arch)
        } else {
            format!(
                "install the package {} (Debian), {} (Alpine) or {} (Fedora)",
                self.debian_t64, self.alpine, self.fedora
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Allocator;

    #[test]
    fn the_command_is_that_of_the_distribution() {
        let tcmalloc = Allocator::Tcmalloc.packages();
        for (os_release, command) in [
            ("ID=debian\nVERSION_ID=\"12\"\n", "apt-get install libtcmalloc-minimal4"),
            ("ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n", "apt-get install libtcmalloc-minimal4t64"),
            ("ID=alpine\nVERSION_ID=3.21.0\n", "apk add gperftools"),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "dnf install gperftools-libs"),
        ] {
            assert_eq!(tcmalloc.install_command_on(os_release), command);
        }
        assert!(tcmalloc.install_command_on("").contains("(Debian)"));
    }
}
