//! Environment variables that the library reads when it starts.

/// Variables with harmful defaults, and better values for them:
///
/// - `FI_SOCKETS_PE_WAITTIME=0`: by default, each thread of the sockets provider spins on a core for 10 ms before it
///   sleeps.
/// - `FI_SOCKETS_CONN_TIMEOUT=4000`: in milliseconds. By default, a post of the sockets provider to a peer that cannot
///   be reached blocks its thread, and so the whole endpoint, for 15 s.
/// - `IPATH_NO_BACKTRACE=1`: by default, libinfinipath installs handlers for the signals of crashes. Some builds of
///   libfabric load it.
/// - `FI_FORK_UNSAFE=1`: by default, some providers make all registered memory safe for `fork`, which costs time at
///   each registration. With this value, a process that uses the library must not fork a child that goes on with the
///   same program. It may start other programs.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("FI_SOCKETS_PE_WAITTIME", "0"),
    ("FI_SOCKETS_CONN_TIMEOUT", "4000"),
    ("IPATH_NO_BACKTRACE", "1"),
    ("FI_FORK_UNSAFE", "1"),
];
