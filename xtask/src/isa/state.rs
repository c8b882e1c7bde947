//! Everything that may be under way at a place of a function, on any path to it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::parse::{Access, Does, How, Instruction, Remark, Scope, Space, Wait};
use super::rules::Rules;

const SCOPES: [Scope; 2] = [Scope::System, Scope::Device];

/// What has become of the earlier stores and loads of a thread, for a release. A state has one bit for each that is
/// possible.
mod release {
    /// All are visible.
    pub(super) const DONE: u8 = 1;
    /// A write-back is under way.
    pub(super) const WRITING: u8 = 2;
    /// There were loads since.
    pub(super) const LOADED: u8 = 4;
    /// There were stores since.
    pub(super) const STORED: u8 = 8;
}

/// How far an acquire has come. A state has one bit for each that is possible: the bit of `AWAITED + n` is that of an
/// awaited access with n invalidations behind it.
mod acquire {
    pub(super) const UNDER_WAY: u8 = 0;
    pub(super) const AWAITED: u8 = 1;
}

/// The last access with a remark, among the registers.
const MARKED: u16 = 1000;

/// Registers whose values are under way, by the number of later accesses of the same counter. The least number counts.
type Ages = BTreeMap<u16, u8>;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    vector: Ages,
    near: Ages,
    /// Whether the caller may have accesses under way.
    callers: bool,
    /// Whether anything may be under way, by counter.
    any_vector: bool,
    any_stores: bool,
    any_near: bool,
    /// Whether something that need not come in order may be.
    any_constant: bool,
    releases: [u8; 2],
    acquires: [u8; 2],
    /// Like `acquires`, for a fence: everything before it counts as the access.
    fences: [u8; 2],
    /// Whether the last access with a remark has the counter of stores.
    marked_store: bool,
    fenced: bool,
    /// What the next access must be.
    next: Option<Remark>,
    /// A barrier was behind the last invalidation.
    behind_barrier: bool,
}

/// Something wrong, in words.
pub(super) type Wrong = &'static str;

impl State {
    /// At the beginning of a function.
    pub(super) fn at_start(is_kernel: bool, rules: &Rules) -> State {
        State {
            vector: Ages::new(),
            near: Ages::new(),
            callers: !is_kernel,
            any_vector: !is_kernel,
            any_stores: !is_kernel && rules.counts_stores,
            any_near: !is_kernel,
            any_constant: !is_kernel,
            // What a kernel finds may have to be written back.
            releases: [release::STORED; 2],
            acquires: [1 << acquire::UNDER_WAY; 2],
            fences: [1 << acquire::UNDER_WAY; 2],
            marked_store: false,
            fenced: false,
            next: None,
            behind_barrier: false,
        }
    }

    /// Adds what may be on another path. Returns whether there is anything new.
    pub(super) fn join(&mut self, other: &State) -> bool {
        let before = self.clone();
        for (mine, theirs) in [
            (&mut self.vector, &other.vector),
            (&mut self.near, &other.near),
        ] {
            for (&register, &age) in theirs {
                let mine = mine.entry(register).or_insert(age);
                *mine = age.min(*mine);
            }
        }
        self.callers |= other.callers;
        self.any_vector |= other.any_vector;
        self.any_stores |= other.any_stores;
        self.any_near |= other.any_near;
        self.any_constant |= other.any_constant;
        for scope in 0..2 {
            self.releases[scope] |= other.releases[scope];
            self.acquires[scope] |= other.acquires[scope];
            self.fences[scope] |= other.fences[scope];
        }
        self.marked_store |= other.marked_store;
        self.fenced &= other.fenced;
        self.next = self.next.or(other.next);
        self.behind_barrier |= other.behind_barrier;
        *self != before
    }

    /// Does an instruction, and adds what is wrong with it.
    pub(super) fn step(
        &mut self,
        instruction: &Instruction,
        rules: &Rules,
        wrong: &mut Vec<Wrong>,
    ) {
        let words = &instruction.words;
        if !self.has_registers(instruction) {
            wrong.push("a register that may be under way");
        }
        match &instruction.does {
            Does::Wait(wait) => self.wait(*wait, rules),
            Does::Access(access) => self.access(*access, instruction, rules, wrong),
            Does::Cache => self.cache(words, rules),
            Does::Barrier => {
                if self.any_vector || self.any_stores || self.any_near {
                    wrong.push("a barrier, and accesses of this wave may be under way");
                }
                self.behind_barrier = rules.behind_barrier.is_some();
            }
            Does::Call => {
                self.leave(wrong);
                // The callee has waited at its return.
                self.vector.clear();
                self.near.clear();
                self.callers = false;
                self.any_vector = false;
                self.any_stores = rules.counts_stores;
                self.any_near = false;
                self.any_constant = false;
                self.releases = [release::STORED; 2];
                self.acquires = [1 << acquire::UNDER_WAY; 2];
                self.fences = [1 << acquire::UNDER_WAY; 2];
                self.marked_store = false;
            }
            Does::Return => {
                self.leave(wrong);
                if self.any_vector || self.any_near {
                    wrong.push("a return, and accesses may be under way");
                }
            }
            Does::End => {
                if self.next.is_some() {
                    wrong.push("a remark without its access");
                }
            }
            Does::Remark(remark) => self.remark(*remark, rules, wrong),
            Does::Branch { .. } | Does::Nothing => (),
        }
    }

    /// Leaves the function, for a call or for good.
    fn leave(&self, wrong: &mut Vec<Wrong>) {
        if self.next.is_some() {
            wrong.push("a remark without its access");
        }
        if self
            .releases
            .iter()
            .any(|state| state & release::WRITING != 0)
        {
            wrong.push("a write-back that is not awaited before a call or a return");
        }
        if self.behind_barrier {
            wrong.push("a call or a return behind a barrier, without the invalidation");
        }
    }

    /// Whether the values of all registers that an instruction names have come.
    fn has_registers(&self, instruction: &Instruction) -> bool {
        let mut registers = instruction.registers.iter();
        // Loads of one counter come in order, so a later one may be for the same register.
        if let Does::Access(access) = &instruction.does
            && access.returns
            && matches!(access.space, Space::Global | Space::Own)
            && let Some(target) = registers.next()
            && (self.callers || self.near.range(target.clone()).next().is_some())
        {
            return false;
        }
        !registers.any(|range| self.is_under_way(range))
    }

    fn is_under_way(&self, range: &Range<u16>) -> bool {
        let has = |ages: &Ages| ages.range(range.clone()).next().is_some();
        self.callers || has(&self.near) || has(&self.vector)
    }

    fn wait(&mut self, wait: Wait, rules: &Rules) {
        if let Some(count) = wait.vector {
            self.vector.retain(|_, age| *age < count);
            // Where stores have a counter of their own, only values of registers count here.
            let is_over = rules.counts_stores && self.vector.is_empty() && !self.callers;
            self.any_vector &= count != 0 && !is_over;
        }
        if let Some(count) = wait.near {
            if count == 0 || !self.any_constant {
                self.near.retain(|_, age| *age < count);
            }
            self.any_near &= count != 0;
            self.any_constant &= count != 0;
        }
        self.any_stores &= wait.stores != Some(0);
        self.callers &= self.any_vector || self.any_near;
        if !self.any_vector {
            for fence in &mut self.fences {
                advance(fence, acquire::UNDER_WAY);
            }
        }
        let store_is_under_way = self.marked_store && self.any_stores;
        if !store_is_under_way && !self.vector.contains_key(&MARKED) {
            for acquire in &mut self.acquires {
                advance(acquire, acquire::UNDER_WAY);
            }
        }
        if self.any_vector || self.any_stores || self.any_near {
            return;
        }
        for (scope, state) in SCOPES.into_iter().zip(&mut self.releases) {
            let mut drained = release::WRITING | release::LOADED;
            if !rules.needs_write_back(scope) {
                drained |= release::STORED;
            }
            if *state & drained != 0 {
                *state = *state & !drained | release::DONE;
            }
        }
    }

    fn cache(&mut self, words: &[String], rules: &Rules) {
        for (which, scope) in SCOPES.into_iter().enumerate() {
            if rules.writes_back(scope, words) {
                self.releases[which] = release::WRITING;
                self.any_vector = true;
            }
            for states in [&mut self.acquires[which], &mut self.fences[which]] {
                for done in (0..rules.invalidations(scope)).rev() {
                    if rules.invalidates(scope, done, words) {
                        advance(states, acquire::AWAITED + done);
                    }
                }
            }
        }
        if rules.behind_barrier == Some(words[0].as_str()) {
            self.behind_barrier = false;
        }
    }

    fn access(
        &mut self,
        access: Access,
        instruction: &Instruction,
        rules: &Rules,
        wrong: &mut Vec<Wrong>,
    ) {
        let is_shared = matches!(access.space, Space::Global | Space::Flat);
        let is_marked = is_shared && self.order(access, &instruction.words, rules, wrong);
        let target = instruction.registers.first().filter(|_| access.returns);
        let target: Vec<u16> = target.cloned().into_iter().flatten().collect();
        if matches!(access.space, Space::Shared | Space::Constant | Space::Flat) {
            self.any_near = true;
            self.any_constant |= access.space == Space::Constant;
            issue(&mut self.near, &target);
        }
        if matches!(access.space, Space::Shared | Space::Constant) {
            return;
        }
        if rules.counts_stores && !access.returns {
            self.any_stores = true;
            self.marked_store |= is_marked;
        } else {
            self.any_vector = true;
            issue(&mut self.vector, &target);
            if is_marked {
                self.vector.insert(MARKED, 0);
            }
        }
    }

    /// The order of an access of memory that others see. Returns whether a remark said something about it.
    fn order(
        &mut self,
        access: Access,
        words: &[String],
        rules: &Rules,
        wrong: &mut Vec<Wrong>,
    ) -> bool {
        if self.behind_barrier && access.how != How::Store {
            wrong.push("a load behind a barrier, without the invalidation");
        }
        let marked = self.next.take();
        let (scope, releases) = match marked {
            Some(Remark::At(scope)) => (Some(scope), false),
            Some(Remark::Releases(scope)) => (Some(scope), true),
            Some(Remark::Follows(scope)) => {
                if !self.fenced {
                    wrong.push("an access that should be behind a fence");
                }
                (Some(scope), false)
            }
            Some(Remark::Acquired(_) | Remark::Fenced(_)) | None => (None, false),
        };
        // With an update, sc0 and glc only say that a value comes back.
        let bits: &[&str] = match access.how {
            How::Load | How::Store => &["sc0", "sc1", "glc"],
            How::Update => &["sc1"],
        };
        // (A volatile access has the modifiers, too. The machine's functions have global addresses.)
        let is_global = access.space == Space::Global;
        if is_global && scope.is_none() && words.iter().any(|word| bits.contains(&word.as_str())) {
            wrong.push("an access with a scope, without a remark");
        }
        if let Some(scope) = scope {
            if !rules.reaches(scope, access, words) {
                wrong.push("an access whose modifiers are not those of its scope");
            }
            if releases && self.releases[index(scope)] != release::DONE {
                wrong.push("a release, and earlier accesses may not be visible");
            }
        }
        if access.how != How::Load {
            if self
                .releases
                .iter()
                .any(|state| state & release::WRITING != 0)
            {
                wrong.push("a store behind a write-back that is not awaited");
            }
            self.fenced &= matches!(marked, Some(Remark::Follows(_)));
        }
        for state in &mut self.releases {
            *state = match access.how {
                How::Load if *state & release::DONE != 0 => {
                    *state & !release::DONE | release::LOADED
                }
                How::Load => *state,
                How::Store | How::Update => release::STORED,
            };
        }
        self.fences = [1 << acquire::UNDER_WAY; 2];
        if scope.is_some() {
            self.acquires = [1 << acquire::UNDER_WAY; 2];
            self.vector.remove(&MARKED);
            self.marked_store = false;
        }
        scope.is_some()
    }

    fn remark(&mut self, remark: Remark, rules: &Rules, wrong: &mut Vec<Wrong>) {
        let is_over = |states: [u8; 2], scope| {
            let over = acquire::AWAITED + rules.invalidations(scope);
            states[index(scope)] == 1 << over
        };
        match remark {
            Remark::At(_) | Remark::Releases(_) | Remark::Follows(_) => {
                if self.next.replace(remark).is_some() {
                    wrong.push("a remark without its access");
                }
            }
            Remark::Acquired(scope) => {
                if !is_over(self.acquires, scope) {
                    wrong.push("an acquire that is not awaited, or does not invalidate");
                }
            }
            Remark::Fenced(scope) => {
                if self.releases[index(scope)] != release::DONE {
                    wrong.push("a fence, and earlier accesses may not be visible");
                }
                if !is_over(self.fences, scope) {
                    wrong.push("a fence that does not wait, or does not invalidate");
                }
                self.fenced = true;
            }
        }
    }
}

fn index(scope: Scope) -> usize {
    match scope {
        Scope::System => 0,
        Scope::Device => 1,
    }
}

/// Goes one step on from one of the possible states of an acquire.
fn advance(states: &mut u8, from: u8) {
    if *states & 1 << from != 0 {
        *states = *states & !(1 << from) | 1 << (from + 1);
    }
}

/// An access that counts: earlier ones get older.
fn issue(ages: &mut Ages, target: &[u16]) {
    for age in ages.values_mut() {
        *age = age.saturating_add(1);
    }
    ages.extend(target.iter().map(|register| (*register, 0)));
}
