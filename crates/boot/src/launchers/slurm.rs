//! The meaning of Slurm's variables.
//!
//! # Model
//!
//! `SLURM_STEP_NODELIST` lists the hosts of a step in a short form: `node[01-04,07],gpu3`. The first task is on the
//! first host, unless the step was given another distribution (`srun -m`).
//!
//! # Failure
//!
//! A text that is no such list has no first host.

/// The first host of a list; `None` if it is no list of hosts.
pub(crate) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list.trim();
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        host.push_str(&rest[..end]);
        if !rest[end..].starts_with('[') {
            break;
        }
        let inside = &rest[end + 1..];
        let close = inside.find(']')?;
        let first = inside[..close].split([',', '-']).next()?;
        if first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        host.push_str(first);
        rest = &inside[close + 1..];
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (!host.is_empty() && host.bytes().all(plain)).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::first_host;

    #[test]
    fn the_first_host_of_a_list_is_found() {
        for (list, first) in [
            ("vm", Some("vm")),
            ("a,b", Some("a")),
            ("node[01-04,07],gpu3", Some("node01")),
            ("node[7,9]", Some("node7")),
            ("r[1-2]n[10-20]", Some("r1n10")),
            ("n[003]-ib", Some("n003-ib")),
            ("x.example.org,y", Some("x.example.org")),
            ("", None),
            (",a", None),
            ("a[", None),
            ("a[]", None),
            ("a[x-y]", None),
            ("a b", None),
        ] {
            assert_eq!(first_host(list).as_deref(), first, "{list:?}");
        }
    }
}
