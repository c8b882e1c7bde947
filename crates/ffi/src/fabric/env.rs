//! The environment that the library needs before it starts.

/// Variables whose defaults hurt, and the values that do not:
///
/// - `FI_SOCKETS_PE_WAITTIME=0`: the sockets provider's threads would spin for 10 ms before they sleep, each on a core
///   of its own.
/// - `FI_SOCKETS_CONN_TIMEOUT=4000`: who posts to a peer of the sockets provider that cannot be reached would stand
///   still for 15 s, and with it all that the endpoint has to do; this is in milliseconds.
/// - `IPATH_NO_BACKTRACE=1`: libinfinipath, which some builds of libfabric load, would install handlers for the signals
///   of crashes.
/// - `FI_FORK_UNSAFE=1`: some providers would make all registered memory safe for `fork`, which costs at every
///   registration. A process that uses the library must not fork and go on (starting a program is fine).
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("FI_SOCKETS_PE_WAITTIME", "0"),
    ("FI_SOCKETS_CONN_TIMEOUT", "4000"),
    ("IPATH_NO_BACKTRACE", "1"),
    ("FI_FORK_UNSAFE", "1"),
];
