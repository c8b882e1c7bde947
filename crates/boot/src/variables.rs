//! Environment variables, each read and checked on its own.
//!
//! # Failure
//!
//! An invalid value is an error that names the variable. The error for a secret has only its length.

use crate::error::BootError;
use crate::wire::MAX_RANKS;
use std::ffi::OsString;
use std::net::IpAddr;
use tidegate_hal::variables::{self, Variable};

/// The variable with the address of this node that NICs use.
pub const ADDRESS: &str = variables::ADDRESS.name;

/// The variable with the name of the node.
pub const NODE: &str = variables::NODE.name;

/// The variable that says which of the machine's devices a rank takes.
pub const DEVICE: &str = variables::DEVICE.name;

/// The variable that says how many ranks share the processors that a rank may use, on whatever nodes they are.
pub const RANKS_HERE: &str = variables::RANKS_HERE.name;

/// The variable with the secret of the job.
pub const SECRET: &str = variables::SECRET.name;

/// The address of this node that NICs use, as the source of what they send, and to listen at: `TIDEGATE_ADDRESS`.
/// `None`: NICs choose.
///
/// The launcher sets the variable. On a test bed it is the address of the rank's node. Otherwise it is the loopback
/// address, since all ranks are on this host. A value by `--env` takes precedence.
///
/// # Errors
///
/// [`BootError::BadVariable`] if the value is no address.
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

/// The shortest allowed secret, in bytes.
pub(crate) const MIN_SECRET: usize = 16;

/// Looks a variable up. A value that is no text is an error.
pub(crate) type Text<'a> = dyn Fn(&'static str) -> Result<Option<String>, BootError> + 'a;

/// The value of a variable. An empty value is an error.
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

/// The secret in the environment, if there is one. A value that is too short is an error.
pub(crate) fn secret(text: &Text<'_>) -> Result<Option<Vec<u8>>, BootError> {
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

/// `host:port`. An IPv6 address gets brackets.
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

/// The number in a variable, within limits.
pub(crate) fn number(
    name: &'static str,
    value: &str,
    least: u64,
    most: u64,
) -> Result<u64, BootError> {
    match value.trim().parse::<u64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(bad(
            name,
            value,
            &format!("it must be a number from {least} to {most}"),
        )),
    }
}

/// The number in a variable, within the variable's limits.
pub fn within(variable: &Variable, value: &str) -> Result<u64, BootError> {
    let (least, most) = variable.limits();
    number(variable.name, value, least, most)
}

/// Rank and size, if both are set.
pub(crate) fn place(
    text: &Text<'_>,
    rank: &'static str,
    size: &'static str,
) -> Result<Option<(usize, usize)>, BootError> {
    let (rank_text, size_text) = match (text(rank)?, text(size)?) {
        (None, None) => return Ok(None),
        (Some(rank), Some(size)) => (rank, size),
        (found, _) => {
            let (name, set) = match found {
                Some(_) => (size, rank),
                None => (rank, size),
            };
            let because = format!("{set} is");
            return Err(BootError::MissingVariable { name, because });
        }
    };
    let size = number(size, &size_text, 1, MAX_RANKS as u64)? as usize;
    let rank = number(rank, &rank_text, 0, size as u64 - 1)? as usize;
    Ok(Some((rank, size)))
}
