//! Variables of the environment, each read and checked on its own.
//!
//! # Failure
//!
//! A value that means nothing is an error that names its variable. Of a secret the error has only the length.

use crate::error::BootError;
use std::ffi::OsString;
use std::net::IpAddr;

/// Says which address of this node NICs are to use.
pub const ADDRESS: &str = "TIDEGATE_ADDRESS";

/// Names the node.
pub const NODE: &str = "TIDEGATE_NODE";

/// Says which of the machine's devices a rank takes.
pub const DEVICE: &str = "TIDEGATE_DEVICE";

/// Says how many ranks share the processors that a rank may use, whatever nodes they are of.
pub const RANKS_HERE: &str = "TIDEGATE_RANKS_HERE";

/// Has the secret of the job.
pub const SECRET: &str = "TIDEGATE_SECRET";

/// The address of this node that NICs are to use, as the source of what they send and to listen at: `TIDEGATE_ADDRESS`.
/// `None`: they choose.
///
/// The launcher sets it: on a bed to the address of the rank's node, else to the loopback address, since all its ranks
/// are on this host. Its `--env` goes before.
///
/// # Errors
///
/// [`BootError::BadVariable`], if it is no address.
pub fn own_address() -> Result<Option<IpAddr>, BootError> {
    let Some(value) = std::env::var_os(ADDRESS) else {
        return Ok(None);
    };
    let value = value.to_string_lossy();
    match value.parse() {
        Ok(address) => Ok(Some(address)),
        Err(_) => Err(bad(ADDRESS, &value, "it must be an IP address")),
    }
}

/// The shortest secret that is taken: 16 bytes.
pub(crate) const MIN_SECRET: usize = 16;

/// The value of a variable; an empty one is an error.
pub(crate) fn text(
    lookup: &impl Fn(&'static str) -> Option<OsString>,
    name: &'static str,
) -> Result<Option<String>, BootError> {
    match lookup(name).map(OsString::into_string) {
        None => Ok(None),
        Some(Ok(text)) if text.is_empty() => Err(bad(name, "", "it is empty")),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(raw)) => Err(bad(name, &raw.to_string_lossy(), "it is not UTF-8")),
    }
}

/// The secret that the environment gives, if it does, and if it is one.
pub(crate) fn secret(
    text: &dyn Fn(&'static str) -> Result<Option<String>, BootError>,
) -> Result<Option<Vec<u8>>, BootError> {
    let secret = text(SECRET)?.map(String::into_bytes);
    if let Some(secret) = &secret
        && secret.len() < MIN_SECRET
    {
        let length = format!("({} bytes)", secret.len());
        let expected = "it must have at least 16 bytes that nobody can guess, for instance from `openssl rand -hex 32`";
        return Err(bad(SECRET, &length, expected));
    }
    Ok(secret)
}

/// `host:port`; an IPv6 address needs brackets beside a port.
pub fn address_of(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

pub(crate) fn bad(name: &'static str, value: &str, expected: &str) -> BootError {
    BootError::BadVariable {
        name,
        value: value.to_owned(),
        expected: expected.to_owned(),
    }
}

/// The number that a variable has, within limits.
pub fn number(name: &'static str, value: &str, least: u64, most: u64) -> Result<u64, BootError> {
    match value.trim().parse::<u64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(bad(
            name,
            value,
            &format!("it must be a number from {least} to {most}"),
        )),
    }
}
