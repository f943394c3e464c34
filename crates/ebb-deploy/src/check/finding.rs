//! The table of all results of `ebb check`. An identifier is an interface: scripts look for it,
//! `docs/check.md` has a section for each, and none changes its meaning.

use ebb_process::heap::HUGE_PAGES_REMEDY;
use serde::{Serialize, Serializer};

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing; the check passes.
    Note,
    /// It could not be found out.
    Unknown,
    /// The allocator, or a setting, is not in effect.
    Error,
}

macro_rules! findings {
    ($($(#[$doc:meta])+ $variant:ident $name:literal $severity:ident $remedy:expr;)+) => {
        /// What can be found.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Id {
            $($(#[$doc])+ $variant,)+
        }

        impl Id {
            /// Every result, in the order of the documentation.
            pub const ALL: &[Id] = &[$(Id::$variant,)+];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self { $(Id::$variant => $name,)+ }
            }

            /// How much it weighs.
            pub const fn severity(self) -> Severity {
                match self { $(Id::$variant => Severity::$severity,)+ }
            }

            /// What to do about it.
            pub const fn remedy(self) -> &'static str {
                match self { $(Id::$variant => $remedy,)+ }
            }
        }
    };
}

findings! {
    /// Nothing asks the loader for the allocator.
    NotAsked "not-asked" Error
        "set LD_PRELOAD in the environment that starts the service (ENV in a Dockerfile, Environment= in a unit), \
         or start it with `ebb run`";
    /// A process further up has the variable, this one has not.
    EnvironmentDropped "environment-dropped" Error
        "let the intermediate program keep LD_PRELOAD (sudo: env_keep; su: without -l; env: without -i; cron, supervisors \
         and service managers: set it for the service itself), or start the service with `ebb run`";
    /// The variable is set only by an entrypoint that this program is not started through.
    EntrypointBypassed "entrypoint-bypassed" Error
        "set LD_PRELOAD by ENV in the Dockerfile, so that it applies however the program is started";
    /// The variable is there while the image is built, and not when it runs.
    BuildTimeOnly "build-time-only" Error
        "use ENV in the last stage: ARG, `RUN export` and ENV in another stage end with the build";
    /// The program itself set the variable, when its loader had run already.
    PreloadTooLate "preload-too-late" Error
        "set LD_PRELOAD before the program starts; a program that sets it itself must execute itself again";
    /// A pattern that only a shell would have replaced.
    NotExpanded "not-expanded" Error
        "write the full path: the loader and ENV do not expand *, ~ or $(...)";
    /// The library is not there.
    LibraryMissing "library-missing" Error
        "install the allocator where the service runs, and use its path there";
    /// The path names the folder of another architecture.
    ArchitecturePath "architecture-path" Error
        "use a path without an architecture in it: a bare name such as libjemalloc.so.2, which the loader searches, \
         or a link of your own in /usr/local/lib";
    /// A path with an architecture in it, in an image that can be built for another.
    ArchitectureBound "architecture-bound" Note
        "use a path without an architecture in it if the image is ever built for another architecture";
    /// The file cannot be an allocator's library.
    LibraryUnusable "library-unusable" Error
        "name an allocator's shared object";
    /// The library is made for another processor.
    WrongArchitecture "wrong-architecture" Error
        "install the library of the program's architecture";
    /// The library is made for another libc.
    WrongLibc "wrong-libc" Error
        "use a library that is built for this libc (on Alpine: apk add), or libebbmalloc.so, which needs none";
    /// The library's segments, or its pages, are smaller than the kernel's.
    PageSize "page-size" Error
        "use a build for larger pages (jemalloc: --with-lg-page=16), or libebbmalloc.so, which reads the page size at run time";
    /// A build that may be for smaller pages than some kernels of its architecture have.
    PageSizeBound "page-size-bound" Note
        "test it on a machine with 16 or 64 KiB pages first; libebbmalloc.so reads the page size at run time";
    /// A library that the allocator's library needs is not there.
    MissingDependency "missing-dependency" Error
        "install the libraries that it needs";
    /// The loader was asked and has not loaded it.
    LoaderRefused "loader-refused" Error
        "start it again as the same user and read stderr: the loader prints the reason there";
    /// The program gained rights when it started.
    SecureMode "secure-mode" Error
        "start it as the user that it switches to, with its rights granted by the service manager, or name the \
         library in /etc/ld.so.preload, which such programs read too";
    /// No loader, so no preload.
    StaticProgram "static-program" Error
        "link the allocator into the program, or build it dynamically";
    /// The program defines `malloc` itself.
    MallocInside "malloc-inside" Error
        "build the program without its allocator";
    /// The program's memory does not come from `malloc` at all.
    AllocatorInside "allocator-inside" Error
        "build the program without its allocator (in Rust: another #[global_allocator]); preloading does not replace it";
    /// Another library comes first.
    OtherFirst "other-first" Error
        "name one allocator only in LD_PRELOAD and /etc/ld.so.preload, as the first library";
    /// The library cannot be loaded after the program has started.
    StaticTls "static-tls" Note
        "name it in LD_PRELOAD: loading it later (dlopen, ctypes, as a module's dependency) fails with \"cannot \
         allocate memory in static TLS block\"";
    /// Lines that end as on Windows.
    LineEnds "line-ends" Note
        "save the file with Unix line endings (dos2unix), unless version control converts it on checkout";
    /// Nothing installs the package.
    PackageMissing "package-missing" Error
        "install the allocator's package in this stage";
    /// The build copies a file that the builder does not have.
    CopyMissing "copy-missing" Error
        "put the file into the build context (`ebb fix --write` puts libebbmalloc.so there), or copy it from a stage that \
         has it";
    /// The service mounts a file that is not on the host.
    MountMissing "mount-missing" Error
        "put the file at the path that the service mounts (`ebb fix --write` puts libebbmalloc.so there), or correct the path";
    /// What the base image has inside is not known.
    BaseUnknown "base-unknown" Note
        "also check a running container or its unpacked file system";
    /// A setting was made when the allocator had read its settings already.
    SettingsTooLate "settings-too-late" Error
        "set it before the program starts: an allocator reads its settings once, at the first request";
    /// A setting in a variable that this build of the allocator does not read.
    SettingsUnread "settings-unread" Error
        "put the settings where the allocator in charge reads them";
    /// A setting that the allocator cannot understand.
    SettingsMalformed "settings-malformed" Error
        "write key:value pairs, separated by commas, without spaces";
    /// A setting of another allocator.
    SettingsOfAnother "settings-of-another" Note
        "remove it, or use the setting of the allocator in charge";
    /// glibc's malloc makes more resident than it needs.
    HugePages "huge-pages" Note
        HUGE_PAGES_REMEDY;
    /// A process that is closed to us.
    Closed "closed" Unknown
        "run ebb as root, or as the user of the process (if the process changed its user, root only)";
    /// Something else could not be read.
    Unreadable "unreadable" Unknown
        "try again; a process cannot be read while it starts or ends";
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Id of the result.
    pub id: Id,
    /// How much it weighs.
    pub severity: Severity,
    /// The process it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The file it is about, with the line where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What was found, in one sentence without a full stop.
    pub what: String,
    /// What to do.
    pub remedy: &'static str,
}

impl Finding {
    /// A finding that is not yet about a process or a file.
    pub fn new(id: Id, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { id, severity: id.severity(), pid: None, file: None, what, remedy: id.remedy() }
    }

    /// About this process.
    #[must_use]
    pub fn of_process(mut self, pid: i32) -> Self {
        self.pid = Some(pid);
        self
    }

    /// About this file.
    #[must_use]
    pub fn in_file(mut self, file: impl Into<String>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// The same with less weight: where it is true, but not of what was asked about.
    #[must_use]
    pub fn as_note(mut self) -> Self {
        self.severity = Severity::Note;
        self
    }
}

/// What the judgement of a file comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The allocator that the image asks for.
    pub allocator: Option<String>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}
