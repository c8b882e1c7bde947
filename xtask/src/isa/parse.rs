//! The assembly that clang writes for AMD GPUs, as functions of instructions.

use std::collections::HashMap;
use std::ops::Range;

/// A function, with its instructions in order.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) is_kernel: bool,
    pub(super) code: Vec<Instruction>,
    /// The instruction that each label stands before.
    pub(super) labels: HashMap<String, usize>,
}

/// An instruction, or a remark.
#[derive(Clone, Debug)]
pub(super) struct Instruction {
    /// Its line in the assembly.
    pub(super) line: usize,
    /// The mnemonic, the operands and the modifiers.
    pub(super) words: Vec<String>,
    /// The registers that its operands name, in their order.
    pub(super) registers: Vec<Range<u16>>,
    pub(super) does: Does,
}

/// The effects of an instruction that the check follows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Does {
    /// Waits until at most so many accesses of a kind are under way.
    Wait(Wait),
    Access(Access),
    /// Writes the cache back, or invalidates it.
    Cache,
    Barrier,
    /// Goes to a label, perhaps only under a condition.
    Branch {
        to: String,
        always: bool,
    },
    Call,
    Return,
    End,
    Remark(Remark),
    Nothing,
}

/// Counts of a wait: loads (and stores, on gfx9), stores (on gfx11), and accesses of shared or constant memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Wait {
    pub(super) vector: Option<u8>,
    pub(super) stores: Option<u8>,
    pub(super) near: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Access {
    pub(super) space: Space,
    pub(super) how: How,
    /// Whether a value comes back.
    pub(super) returns: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Space {
    Global,
    /// Global memory, or shared memory: the address says.
    Flat,
    /// A thread's own memory, for registers that it has no room for.
    Own,
    Shared,
    /// Through the scalar cache.
    Constant,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum How {
    Load,
    Store,
    Update,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scope {
    System,
    Device,
}

/// A remark of `kernels/machine/amd.cuh`, which explains them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Remark {
    At(Scope),
    Releases(Scope),
    Follows(Scope),
    Acquired(Scope),
    Fenced(Scope),
}

/// The functions of an assembly file.
///
/// # Errors
///
/// If there is something that the check does not know.
pub(super) fn functions(assembly: &str) -> Result<Vec<Function>, String> {
    let mut functions: Vec<Function> = Vec::new();
    let mut kernels = Vec::new();
    let mut current: Option<Function> = None;
    for (line, text) in (1..).zip(assembly.lines()) {
        if let Some(remark) = text.trim().strip_prefix("; tidegate: ") {
            let remark = self::remark(remark).ok_or_else(|| format!("line {line}: {text}"))?;
            let function = current.as_mut();
            let function = function.ok_or_else(|| format!("line {line}: a remark alone"))?;
            function.code.push(Instruction {
                line,
                words: vec![text.trim().to_owned()],
                registers: Vec::new(),
                does: Does::Remark(remark),
            });
            continue;
        }
        let code = text.split(';').next().unwrap_or_default().trim();
        if code.is_empty() {
            continue;
        }
        if let Some(label) = code.strip_suffix(':') {
            if label.starts_with(".Lfunc_end") {
                functions.extend(current.take());
            } else if let Some(function) = &mut current {
                let at = function.code.len();
                function.labels.insert(label.to_owned(), at);
            } else if text.contains("; @") && !label.starts_with('.') {
                current = Some(Function {
                    name: label.to_owned(),
                    is_kernel: false,
                    code: Vec::new(),
                    labels: HashMap::new(),
                });
            }
            continue;
        }
        if let Some(kernel) = code.strip_prefix(".amdhsa_kernel ") {
            kernels.push(kernel.to_owned());
        }
        if code.starts_with('.') {
            continue;
        }
        if let Some(function) = &mut current {
            let instruction =
                instruction(line, code).map_err(|why| format!("line {line}: {why}: {code}"))?;
            function.code.push(instruction);
        }
    }
    for function in &mut functions {
        function.is_kernel = kernels.contains(&function.name);
    }
    if functions.is_empty() {
        return Err("there are no functions".into());
    }
    Ok(functions)
}

fn remark(text: &str) -> Option<Remark> {
    let mut words = text.split_whitespace().rev();
    let scope = match words.next()? {
        "system" => Scope::System,
        "device" => Scope::Device,
        _ => return None,
    };
    Some(match words.next() {
        None => Remark::At(scope),
        Some("releases") => Remark::Releases(scope),
        Some("follows") => Remark::Follows(scope),
        Some("acquired") => Remark::Acquired(scope),
        Some("fenced") => Remark::Fenced(scope),
        Some(_) => return None,
    })
}

fn instruction(line: usize, code: &str) -> Result<Instruction, &'static str> {
    let words: Vec<String> = code
        .split([' ', '\t', ','])
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    let does = does(&words)?;
    let registers = match does {
        Does::Wait(_) | Does::Branch { .. } => Vec::new(),
        _ => words[1..]
            .iter()
            .filter_map(|word| registers(word))
            .collect(),
    };
    Ok(Instruction {
        line,
        words,
        registers,
        does,
    })
}

fn does(words: &[String]) -> Result<Does, &'static str> {
    let op = words[0].as_str();
    let has = |word: &str| words.iter().any(|other| other == word);
    if let Some(how) = op.strip_prefix("s_waitcnt") {
        return match how {
            "" => wait(&words[1..]),
            "_vscnt" => {
                let count = words.last().and_then(|count| count.strip_prefix("0x"));
                let stores = count.and_then(|count| u8::from_str_radix(count, 16).ok());
                Ok(Does::Wait(Wait {
                    stores: Some(stores.ok_or("an unknown count")?),
                    ..Wait::default()
                }))
            }
            // This one is about registers that instructions read late.
            "_depctr" => Ok(Does::Nothing),
            _ => Err("an unknown wait"),
        };
    }
    let branch = |always| Does::Branch {
        to: words.last().cloned().unwrap_or_default(),
        always,
    };
    match op {
        "s_barrier" => return Ok(Does::Barrier),
        "s_branch" => return Ok(branch(true)),
        "s_swappc_b64" => return Ok(Does::Call),
        "s_setpc_b64" => return Ok(Does::Return),
        "s_endpgm" => return Ok(Does::End),
        "s_call_b64" | "s_barrier_signal" | "s_barrier_wait" | "s_rfe_b64" => {
            return Err("an unknown instruction");
        }
        _ if op.starts_with("s_cbranch") => return Ok(branch(false)),
        _ => (),
    }
    let cache = ["buffer_wb", "buffer_inv", "buffer_gl"];
    if cache.iter().any(|prefix| op.starts_with(prefix)) {
        return Ok(Does::Cache);
    }
    let scalar = ["s_load", "s_buffer_load", "s_mem", "s_sendmsg_rtn"];
    if scalar.iter().any(|prefix| op.starts_with(prefix)) {
        return Ok(Does::Access(Access {
            space: Space::Constant,
            how: How::Load,
            returns: true,
        }));
    }
    let spaces = [
        ("global_", Space::Global),
        ("flat_", Space::Flat),
        ("scratch_", Space::Own),
        // Stacks of gfx90a.
        ("buffer_", Space::Own),
        ("ds_", Space::Shared),
    ];
    let space = spaces
        .iter()
        .find_map(|(prefix, space)| Some((*space, op.strip_prefix(prefix)?)));
    let Some((space, rest)) = space else {
        return Ok(Does::Nothing);
    };
    let (how, returns) = if rest.starts_with("load") || rest.starts_with("read") {
        (How::Load, true)
    } else if rest.starts_with("store") || rest.starts_with("write") {
        (How::Store, false)
    } else if rest.starts_with("bpermute") || rest.starts_with("swizzle") {
        (How::Load, true)
    } else if rest.starts_with("atomic") {
        // gfx940 and newer mark a value that comes back by sc0, and the others by glc.
        let sc0 = has("sc0");
        (How::Update, sc0 || has("glc"))
    } else if space == Space::Shared {
        (How::Update, rest.contains("rtn"))
    } else {
        return Err("an unknown access");
    };
    Ok(Does::Access(Access {
        space,
        how,
        returns,
    }))
}

/// The counts of `s_waitcnt`.
fn wait(words: &[String]) -> Result<Does, &'static str> {
    let mut wait = Wait::default();
    for word in words {
        let (kind, count) = word.split_once('(').ok_or("an unknown count")?;
        let count = count.trim_end_matches(')').parse();
        let count = Some(count.map_err(|_| "an unknown count")?);
        match kind {
            "vmcnt" => wait.vector = count,
            "lgkmcnt" => wait.near = count,
            "expcnt" => (),
            _ => return Err("an unknown count"),
        }
    }
    Ok(Does::Wait(wait))
}

/// The registers of an operand: vector registers from 0 on, accumulators from 256, and scalars from 512.
fn registers(word: &str) -> Option<Range<u16>> {
    const VCC: u16 = 512 + 106;
    let word = word.trim_matches(['-', '|', '(', ')']);
    let word = ["neg(", "abs("].iter().fold(word, |word, prefix| {
        word.strip_prefix(prefix).unwrap_or(word)
    });
    match word {
        "vcc" => return Some(VCC..VCC + 2),
        "vcc_lo" => return Some(VCC..VCC + 1),
        "vcc_hi" => return Some(VCC + 1..VCC + 2),
        _ => (),
    }
    let base = match word.chars().next()? {
        'v' => 0,
        'a' => 256,
        's' => 512,
        _ => return None,
    };
    let rest = &word[1..];
    if let Some(range) = rest.strip_prefix('[') {
        let (first, last) = range.strip_suffix(']')?.split_once(':')?;
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        return Some(base + first..base + last + 1);
    }
    // Half of a register has a suffix.
    let number = rest.trim_end_matches(".l").trim_end_matches(".h");
    let first: u16 = number.parse().ok()?;
    Some(base + first..base + first + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_name_registers() {
        assert_eq!(registers("v7"), Some(7..8));
        assert_eq!(registers("-v7"), Some(7..8));
        assert_eq!(registers("|v7|"), Some(7..8));
        assert_eq!(registers("v7.h"), Some(7..8));
        assert_eq!(registers("v[2:5]"), Some(2..6));
        assert_eq!(registers("a1"), Some(257..258));
        assert_eq!(registers("s[4:5]"), Some(516..518));
        assert_eq!(registers("vcc"), Some(618..620));
        for other in ["0x10", "off", "exec", "vmcnt", "sc0", "null", "_Z1v2"] {
            assert_eq!(registers(other), None, "{other}");
        }
    }

    #[test]
    fn what_the_check_does_not_know_is_an_error() {
        for unknown in [
            "s_waitcnt vmcnt(many)",
            "s_waitcnt_loadcnt 0x0",
            "global_wb scope:SCOPE_SYS",
            "s_barrier_signal -1",
        ] {
            assert!(instruction(1, unknown).is_err(), "{unknown}");
        }
    }
}
