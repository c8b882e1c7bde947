//! What orders memory, on each kind of GPU. It follows the tables of LLVM's guide for AMD GPUs, "Memory Model".

use super::parse::{Access, How, Scope};

/// The rules of a kind of GPU. An instruction fits a list of words if it has all of them.
pub(super) struct Rules {
    /// Whether stores have a counter of their own.
    pub(super) counts_stores: bool,
    system: Order,
    device: Order,
    /// What comes between a barrier and a load: the block may use two caches.
    pub(super) behind_barrier: Option<&'static str>,
}

struct Order {
    /// The modifiers of accesses at this scope.
    load: &'static [&'static str],
    store: &'static [&'static str],
    update: &'static [&'static str],
    /// What writes back, if anything must be.
    write_back: Option<&'static [&'static str]>,
    /// What invalidates, in this order.
    invalidate: &'static [&'static [&'static str]],
}

impl Rules {
    /// # Errors
    ///
    /// If the kind of GPU is unknown.
    pub(super) fn of(gpu: &str) -> Result<Rules, String> {
        match gpu {
            "gfx90a" => Ok(Rules {
                counts_stores: false,
                system: Order {
                    load: &["glc"],
                    store: &[],
                    update: &[],
                    write_back: Some(&["buffer_wbl2"]),
                    invalidate: &[&["buffer_invl2"], &["buffer_wbinvl1_vol"]],
                },
                device: Order {
                    load: &["glc"],
                    store: &[],
                    update: &[],
                    write_back: None,
                    invalidate: &[&["buffer_wbinvl1_vol"]],
                },
                behind_barrier: None,
            }),
            "gfx942" | "gfx950" => Ok(Rules {
                counts_stores: false,
                system: Order {
                    load: &["sc0", "sc1"],
                    store: &["sc0", "sc1"],
                    update: &["sc1"],
                    write_back: Some(&["buffer_wbl2", "sc0", "sc1"]),
                    invalidate: &[&["buffer_inv", "sc0", "sc1"]],
                },
                device: Order {
                    load: &["sc1"],
                    store: &["sc1"],
                    update: &[],
                    write_back: Some(&["buffer_wbl2", "sc1"]),
                    invalidate: &[&["buffer_inv", "sc1"]],
                },
                behind_barrier: None,
            }),
            "gfx1100" => {
                let order = || Order {
                    load: &["glc"],
                    store: &[],
                    update: &[],
                    write_back: None,
                    invalidate: &[&["buffer_gl1_inv"], &["buffer_gl0_inv"]],
                };
                Ok(Rules {
                    counts_stores: true,
                    system: order(),
                    device: order(),
                    behind_barrier: Some("buffer_gl0_inv"),
                })
            }
            _ => Err(format!("no rules are known for {gpu}")),
        }
    }

    fn at(&self, scope: Scope) -> &Order {
        match scope {
            Scope::System => &self.system,
            Scope::Device => &self.device,
        }
    }

    /// Whether an access has the modifiers that its scope asks for.
    pub(super) fn reaches(&self, scope: Scope, access: Access, words: &[String]) -> bool {
        let order = self.at(scope);
        fits(
            match access.how {
                How::Load => order.load,
                How::Store => order.store,
                How::Update => order.update,
            },
            words,
        )
    }

    /// Whether a release at this scope needs a write-back.
    pub(super) fn needs_write_back(&self, scope: Scope) -> bool {
        self.at(scope).write_back.is_some()
    }

    pub(super) fn writes_back(&self, scope: Scope, words: &[String]) -> bool {
        let write_back = self.at(scope).write_back;
        write_back.is_some_and(|needed| fits(needed, words))
    }

    /// How many instructions invalidate at this scope.
    pub(super) fn invalidations(&self, scope: Scope) -> u8 {
        u8::try_from(self.at(scope).invalidate.len()).expect("one or two")
    }

    /// Whether an instruction is the one that invalidates behind `done` others.
    pub(super) fn invalidates(&self, scope: Scope, done: u8, words: &[String]) -> bool {
        let next = self.at(scope).invalidate.get(usize::from(done));
        next.is_some_and(|needed| fits(needed, words))
    }
}

fn fits(needed: &[&str], words: &[String]) -> bool {
    needed
        .iter()
        .all(|needed| words.iter().any(|word| word == needed))
}
