//! The actions of one thread, by the PTX.
//!
//! # Model
//!
//! The instructions of a function are carried out one after the other, for one thread. Plain loads read only memory
//! that the test has filled. The test gives the results of primitive loads and of called functions. All primitives and
//! calls are recorded, with addresses and values.
//!
//! # Failure
//!
//! An unknown instruction ends the thread with a message. So does a register that was never written.

use std::collections::{BTreeSet, HashMap};

/// The address of the kernel's parameter.
pub(super) const PARAMETER: u64 = 1 << 40;
/// The address of the one named shared word, which has 32 bits.
pub(super) const SHARED: u64 = 1 << 20;

/// The instruction that stores to the shared word.
const STORES: &str = "st.shared.u32";

/// A primitive (its instruction without operands) or a call (the function's name), with the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Did {
    pub(super) what: String,
    pub(super) with: Vec<u64>,
}

impl Did {
    pub(super) fn new(what: &str, with: &[u64]) -> Self {
        Did {
            what: what.to_owned(),
            with: with.to_vec(),
        }
    }
}

/// The start of a thread.
pub(super) struct Start {
    pub(super) block: u64,
    pub(super) thread: u64,
    /// The contents of memory, by address.
    pub(super) memory: Vec<(u64, Vec<u8>)>,
}

/// The record of a thread.
#[derive(Default)]
pub(super) struct Trace {
    pub(super) did: Vec<Did>,
    /// The lines that were carried out from the first primitive on, without the beginning of a block; and of these the
    /// branches, with whether each was taken.
    pub(super) lines: BTreeSet<usize>,
    pub(super) branches: BTreeSet<(usize, bool)>,
}

struct Thread<'a> {
    body: &'a [String],
    start: &'a Start,
    registers: HashMap<&'a str, u64>,
    /// Parameters and results of calls.
    parameters: HashMap<&'a str, u64>,
}

/// A type's width in bits, and whether it has a sign.
fn width(ty: &str) -> Result<(u32, bool), String> {
    let digits = ty.trim_start_matches(|c: char| !c.is_ascii_digit());
    match (ty, digits.parse()) {
        ("pred", _) => Ok((1, false)),
        (_, Ok(bits)) => Ok((bits, ty.starts_with('s'))),
        _ => Err(format!("{ty} is no type")),
    }
}

/// The number with these bits.
fn number(value: u64, ty: &str) -> Result<i128, String> {
    let (bits, signed) = width(ty)?;
    let shift = 64 - bits;
    Ok(if signed {
        i128::from((value << shift).cast_signed() >> shift)
    } else {
        i128::from(value << shift >> shift)
    })
}

/// The bits of a number.
fn bits_of(number: i128, ty: &str) -> Result<u64, String> {
    let (bits, _) = width(ty)?;
    Ok((number as u64) << (64 - bits) >> (64 - bits))
}

/// The operand in the brackets of an address: a base, and an offset.
fn address(operand: &str) -> Option<(&str, u64)> {
    let inside = operand.strip_prefix('[')?.strip_suffix(']')?;
    let (base, offset) = inside.split_once('+').unwrap_or((inside, "0"));
    Some((base, offset.parse().ok()?))
}

/// The operands of an instruction.
fn operands(code: &str) -> Vec<&str> {
    let parts = code.split(['{', '}', ',', ';']).map(str::trim);
    parts.filter(|part| !part.is_empty()).collect()
}

impl<'a> Thread<'a> {
    fn value(&self, operand: &str) -> Result<u64, String> {
        if let Ok(number) = operand.parse::<i64>() {
            return Ok(number.cast_unsigned());
        }
        match operand {
            "%ctaid.x" => Ok(self.start.block),
            "%tid.x" => Ok(self.start.thread),
            _ if operand.ends_with("_param_0") => Ok(PARAMETER),
            _ if operand.starts_with("_ZZ7waiting") => Ok(SHARED),
            _ => {
                let known = self.registers.get(operand).copied();
                known.ok_or_else(|| format!("nothing was written to {operand}"))
            }
        }
    }

    fn at(&self, operand: &str) -> Result<u64, String> {
        let (base, offset) = address(operand).ok_or_else(|| format!("{operand} is no address"))?;
        Ok(self.value(base)?.wrapping_add(offset))
    }

    fn read(&self, at: u64, ty: &str) -> Result<u64, String> {
        let bytes = (width(ty)?.0 / 8) as usize;
        let piece = self.start.memory.iter().find_map(|(base, piece)| {
            let begin = at.checked_sub(*base)? as usize;
            piece.get(begin..begin + bytes)
        });
        let piece = piece.ok_or_else(|| format!("{at:#x} is nobody's to read"))?;
        let mut value = [0; 8];
        value[..bytes].copy_from_slice(piece);
        Ok(u64::from_le_bytes(value))
    }

    /// Carries out an instruction that only changes registers.
    fn compute(&mut self, code: &'a str) -> Result<(), String> {
        let (op, rest) = code
            .split_once([' ', '\t'])
            .ok_or_else(|| format!("`{code}` is not known"))?;
        let kinds: Vec<_> = op.split('.').collect();
        let ty = kinds[kinds.len() - 1];
        let list = operands(rest);
        if kinds[0] == "st" && kinds[1] == "param" {
            if let Some((name, 0)) = address(list[0]) {
                let value = self.value(list[1])?;
                self.parameters.insert(name, value);
                return Ok(());
            }
        } else if kinds[0] == "ld" && list[list.len() - 1].starts_with("[retval") {
            if let Some((name, 0)) = address(list[1]) {
                let value = self.parameters.get(name).copied();
                let value = value.ok_or_else(|| format!("nobody has returned {name}"))?;
                self.registers.insert(list[0], value);
                return Ok(());
            }
        } else if op.starts_with("ld.param.") || op.starts_with("ld.global.") {
            let (from, to) = list.split_last().expect("a load has operands");
            let mut at = self.at(from)?;
            for register in to {
                let value = self.read(at, ty)?;
                self.registers.insert(register, value);
                at += u64::from(width(ty)?.0 / 8);
            }
            return Ok(());
        }
        let value = |index: usize| self.value(list[index]);
        let n = |index: usize| number(value(index)?, ty);
        let result = match kinds[0] {
            "mov" | "cvta" => bits_of(n(1)?, ty)?,
            "cvt" => bits_of(n(1)?, kinds[1])?,
            // The result is twice as wide as the factors.
            "mul" if kinds[1] == "wide" => (n(1)? * n(2)?) as u64,
            "add" => bits_of(n(1)? + n(2)?, ty)?,
            "sub" => bits_of(n(1)? - n(2)?, ty)?,
            "and" => bits_of(n(1)? & n(2)?, ty)?,
            "or" => bits_of(n(1)? | n(2)?, ty)?,
            "xor" => bits_of(n(1)? ^ n(2)?, ty)?,
            "not" => bits_of(!n(1)?, ty)?,
            "shl" => bits_of(n(1)? << value(2)?.min(64), ty)?,
            "shr" => bits_of(n(1)? >> value(2)?.min(64), ty)?,
            "selp" => value(if value(3)? != 0 { 1 } else { 2 })?,
            "setp" => u64::from(match kinds[1] {
                "eq" => n(1)? == n(2)?,
                "ne" => n(1)? != n(2)?,
                "lt" => n(1)? < n(2)?,
                "le" => n(1)? <= n(2)?,
                "gt" => n(1)? > n(2)?,
                "ge" => n(1)? >= n(2)?,
                _ => return Err(format!("`{code}` is not known")),
            }),
            _ => return Err(format!("`{code}` is not known")),
        };
        self.registers.insert(list[0], result);
        Ok(())
    }

    /// A primitive: its arguments, and the register for the value that it loads.
    fn primitive(&self, code: &'a str) -> Result<(Did, Option<&'a str>), String> {
        let code = code.trim_end_matches(';');
        let (what, rest) = code.split_once(' ').unwrap_or((code, ""));
        let mut list = operands(rest);
        let loads = what.starts_with("ld.") || what.starts_with("atom.");
        let loads = loads.then(|| list.remove(0));
        let given = |operand: &&str| {
            if operand.starts_with('[') {
                self.at(operand)
            } else {
                self.value(operand)
            }
        };
        let with = list.iter().map(given).collect::<Result<Vec<_>, _>>()?;
        Ok((Did::new(what, &with), loads))
    }

    /// The call that begins at a line: its arguments, and its number of lines.
    fn call(&self, at: usize) -> Result<(Did, usize), String> {
        let lines = &self.body[at..];
        let count = 1 + lines
            .iter()
            .position(|line| line.ends_with(';'))
            .ok_or("a call has no end")?;
        let name = lines[..count].iter().find(|line| line.starts_with("_Z"));
        let name = name
            .ok_or("a call has no name")?
            .trim_end_matches([',', ' ']);
        let given = lines[..count]
            .iter()
            .filter(|line| line.starts_with("param"));
        let value = |line: &String| {
            let name = line.trim_end_matches([',', ' ']);
            let value = self.parameters.get(name).copied();
            value.ok_or_else(|| format!("{name} is not given"))
        };
        let with = given.map(value).collect::<Result<Vec<_>, _>>()?;
        Ok((Did::new(name, &with), count))
    }
}

/// Carries out a function for one thread. `answer` gives the value that a primitive loads or a call returns.
pub(super) fn carry_out(
    body: &[String],
    start: &Start,
    mut answer: impl FnMut(&Did) -> u64,
) -> Result<Trace, String> {
    let mut thread = Thread {
        body,
        start,
        registers: HashMap::new(),
        parameters: HashMap::new(),
    };
    let mut trace = Trace::default();
    let (mut at, mut assembly) = (0, false);
    for _ in 0..100_000 {
        let line = body.get(at).ok_or("a function without an end")?;
        let (guard, code) = match line.strip_prefix('@') {
            Some(guarded) => guarded.split_once(' ').ok_or("a guard stands alone")?,
            None => ("", line.as_str()),
        };
        let code = code.trim();
        let holds = match guard.strip_prefix('!') {
            Some(not) => thread.value(not)? == 0,
            None => guard.is_empty() || thread.value(guard)? != 0,
        };
        let begins = |did: &Did| did.what == STORES || did.what == "bar.sync";
        if !trace.did.iter().all(begins) {
            trace.lines.insert(at);
            if !guard.is_empty() {
                trace.branches.insert((at, holds));
            }
        }
        at += 1;
        match code {
            "// begin inline asm" => assembly = true,
            "// end inline asm" => assembly = false,
            _ if assembly => {
                let (did, loads) = thread.primitive(code)?;
                let value = answer(&did);
                if let Some(register) = loads {
                    thread.registers.insert(register, value);
                }
                if !begins(&did) {
                    trace.lines.insert(at - 1);
                }
                trace.did.push(did);
            }
            _ if code.starts_with(STORES) => trace.did.push(thread.primitive(code)?.0),
            _ if code.starts_with("call") => {
                let (did, count) = thread.call(at - 1)?;
                thread.parameters.clear();
                thread.parameters.insert("retval0", answer(&did));
                trace.did.push(did);
                at += count - 1;
            }
            _ if code.starts_with("ret") => return Ok(trace),
            _ if code.starts_with("bra") => {
                let target = code
                    .split([' ', '\t', ';'])
                    .find(|part| part.starts_with('$'));
                let target = target.ok_or("a branch has a target")?;
                if holds {
                    let label = |line: &String| line.strip_suffix(':') == Some(target);
                    at = body.iter().position(label).ok_or("a label is missing")?;
                }
            }
            _ if !guard.is_empty() => return Err(format!("`{line}` is not known")),
            // Directives for the function, labels, and the lines around calls.
            _ if code.is_empty() || code.starts_with(['.', '{', '}', '/', '$']) => {}
            _ => thread.compute(code)?,
        }
    }
    Err("no end after so many instructions".into())
}
