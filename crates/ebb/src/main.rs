//! The program `ebb`. All of it is in the library, so that the tests can use the pieces; what the build puts into the
//! program is here, so that only this file is compiled again where it changes.

use std::process::ExitCode;

const COMMIT: Option<&str> = option_env!("EBB_COMMIT");
/// Whether it needs no library of the system.
const IS_STATIC: bool = cfg!(target_feature = "crt-static");

#[cfg(feature = "carried")]
mod carried {
    use ebb_process::carried::{Contents, Packed};

    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// `EBB_CARRY` is a folder that ci/program.sh fills.
    pub const CONTENTS: Contents = Contents {
        libraries: &[
            Packed {
                arch: "x86_64",
                version: VERSION,
                gzip: include_bytes!(concat!(env!("EBB_CARRY"), "/x86_64/libebbmalloc.so.gz")),
            },
            Packed {
                arch: "aarch64",
                version: VERSION,
                gzip: include_bytes!(concat!(env!("EBB_CARRY"), "/aarch64/libebbmalloc.so.gz")),
            },
        ],
        header: include_bytes!(concat!(env!("EBB_CARRY"), "/ebbmalloc.h")),
    };
}

#[cfg(not(feature = "carried"))]
mod carried {
    use ebb_process::carried::Contents;

    pub const CONTENTS: Contents = Contents { libraries: &[], header: &[] };
}

/// Has libc look names of hosts up by what it has inside: /etc/hosts and DNS. It would load modules that
/// /etc/nsswitch.conf names, made for another glibc.
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
fn without_modules() {
    unsafe extern "C" {
        fn __nss_configure_lookup(
            database: *const std::ffi::c_char,
            services: *const std::ffi::c_char,
        ) -> std::ffi::c_int;
    }
    // SAFETY: glibc's nss.h declares it so; both are strings that live as long as the program, and there is one thread.
    // It refuses only names of databases that it does not know.
    unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
}

#[cfg(not(all(target_env = "gnu", target_feature = "crt-static")))]
fn without_modules() {}

fn main() -> ExitCode {
    without_modules();
    ebb_process::carried::set(carried::CONTENTS);
    ebb::cli::main(COMMIT, IS_STATIC)
}
