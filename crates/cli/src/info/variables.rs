//! The variables that matter, their values, and where these come from.

use super::table;
use crate::options::JobArgs;
use std::ffi::{OsStr, OsString};
use std::io;
use tidegate_core::{Chunks, Route};
use tidegate_hal::variables::{ALL, CHUNKS, ROUTE, SECRET, Variable, misspelt};

/// A variable as the ranks of a job see it.
pub(super) struct Setting {
    name: String,
    /// What tidegate knows of it, if tidegate reads it.
    known: Option<&'static Variable>,
    /// Its value and the source of that, if it is set.
    value: Option<(OsString, &'static str)>,
}

impl Setting {
    /// All known variables, and those that the launcher or the options set, or whose names begin with `TIDEGATE_`.
    pub(super) fn all(options: &JobArgs, defaults: &[(&str, &str)]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let mut set = |name: &str, value: Option<(OsString, &'static str)>| {
            let known = ALL.iter().find(|each| each.name == name);
            match all.iter_mut().find(|each| each.name == name) {
                Some(each) => each.value = value.or(each.value.take()),
                None => all.push(Self {
                    name: name.to_owned(),
                    known,
                    value,
                }),
            }
        };
        for variable in ALL {
            set(variable.name, None);
        }
        for (name, value) in defaults {
            set(name, Some((value.into(), "tidegate run")));
        }
        let of_tidegate = |name: &str| name.starts_with("TIDEGATE_");
        for (name, value) in std::env::vars_os() {
            let name = name.to_string_lossy();
            let is_default = defaults.iter().any(|(default, _)| *default == name);
            if of_tidegate(&name) || is_default || ALL.iter().any(|each| each.name == name) {
                set(&name, Some((value, "environment")));
            }
        }
        for (name, value) in &options.exports {
            set(&name.to_string_lossy(), Some((value.clone(), "option -x")));
        }
        for (name, value) in &options.envs {
            set(name, Some((value.into(), "option -e")));
        }
        all
    }

    /// What is wrong with the value.
    fn problem(&self) -> Option<String> {
        let (value, _) = self.value.as_ref()?;
        complaint(self.known?, value)
    }
}

/// What is wrong with the variables of this process.
pub(crate) fn wrong_here() -> Vec<String> {
    let unknown = misspelt(std::env::vars_os().map(|(name, _)| name));
    let unread = ALL.iter().filter_map(|known| {
        let value = std::env::var_os(known.name)?;
        complaint(known, &value)
    });
    let unknown = unknown.iter().map(ToString::to_string);
    unknown.chain(unread).collect()
}

/// A value that cannot be read, and why.
fn complaint(variable: &Variable, value: &OsStr) -> Option<String> {
    let reason = wrong(variable, value)?;
    let value = for_people(variable.name, value);
    Some(format!("{}={value}: {reason}", variable.name))
}

/// Why a value cannot be read.
fn wrong(variable: &Variable, value: &OsStr) -> Option<String> {
    let formed = variable.check(value);
    let text = value.to_string_lossy();
    let parsed = match variable.name {
        name if name == ROUTE.name => Route::parse(&text).map(drop),
        name if name == CHUNKS.name => Chunks::parse(&text).map(drop),
        _ => Ok(()),
    };
    formed
        .err()
        .or_else(|| parsed.err().map(|error| error.to_string()))
}

/// A value for people. The secret stays one.
fn for_people(name: &str, value: &OsStr) -> String {
    if name == SECRET.name {
        return format!("({} bytes)", value.len());
    }
    match value.to_string_lossy() {
        text if text.is_empty() => "(empty)".to_owned(),
        text => text.into_owned(),
    }
}

/// Tells first of all which names are misspelt, and which values cannot be read.
pub(super) fn problems(settings: &[Setting], out: &mut Vec<u8>) -> io::Result<()> {
    use io::Write as _;
    let set = settings.iter().filter(|each| each.value.is_some());
    let unknown = misspelt(set.map(|each| each.name.clone().into()));
    let unknown = unknown.iter().map(ToString::to_string);
    let all: Vec<_> = unknown
        .chain(settings.iter().filter_map(Setting::problem))
        .collect();
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "Look at these variables:")?;
    for each in all {
        writeln!(out, "  {each}")?;
    }
    writeln!(out)
}

/// Tells which variables are set, and with `all` also the others.
pub(super) fn tell(settings: &[Setting], all: bool, out: &mut Vec<u8>) -> io::Result<()> {
    use io::Write as _;
    // A launcher passes on some variables to its ranks, which users do not set: these have no default.
    let is_for_users = |each: &&Setting| each.known.is_none_or(|known| !known.default.is_empty());
    let shown = settings.iter().filter(is_for_users);
    let (set, others): (Vec<_>, Vec<_>) = shown.partition(|each| each.value.is_some());
    writeln!(out, "\nVariables that are set:")?;
    let row = |each: &Setting| {
        let (value, source) = each.value.as_ref()?;
        Some([
            each.name.clone(),
            for_people(&each.name, value),
            (*source).to_owned(),
        ])
    };
    let rows: Vec<_> = set.iter().filter_map(|each| row(each)).collect();
    match rows.is_empty() {
        true => writeln!(out, "  none")?,
        false => table::write(&rows, "  ", out)?,
    }
    let row = |each: &&Setting| Some([each.name.clone(), each.known?.default.to_owned()]);
    let rows: Vec<_> = others.iter().filter_map(row).collect();
    if all {
        writeln!(out, "\nVariables that are not set, and what holds then:")?;
        table::write(&rows, "  ", out)
    } else {
        writeln!(
            out,
            "  ({} others are not set: --all lists them, with their defaults)",
            rows.len()
        )
    }
}
