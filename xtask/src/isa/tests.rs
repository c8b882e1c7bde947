//! Small functions, each with and without an error.

use super::check;
use super::mutants::verdicts;

/// A function of these instructions, one a line. Words at the beginning of a line are labels or remarks.
fn function(code: &str) -> String {
    format!("f:                    ; @f\n{code}\ts_setpc_b64 s[30:31]\n.Lfunc_end0:\n")
}

const ENTRY: &str = "\ts_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)\n";

/// Whether there is exactly this fault, once, in a function that has `before` it.
#[track_caller]
fn wrong(gpu: &str, code: &str, fault: Option<&str>) {
    let found = check(&function(&format!("{ENTRY}{code}")), gpu).unwrap();
    match fault {
        None => assert!(found.is_empty(), "{found:#?}"),
        Some(fault) => assert!(
            found.len() == 1 && found[0].starts_with(fault),
            "{found:#?}"
        ),
    }
}

const STORE: &str = "\tglobal_store_dword v[0:1], v2, off\n";
const RETURN: &str = "\ts_waitcnt vmcnt(0)\n";

#[test]
fn a_release_awaits_its_write_back() {
    let release = |between: &str| {
        format!(
            "{STORE}\tbuffer_wbl2 sc0 sc1\n{between}; tidegate: releases system\n\tglobal_atomic_add_x2 v[4:5], v[6:7], off sc1\n{RETURN}"
        )
    };
    wrong("gfx942", &release("\ts_waitcnt vmcnt(0)\n"), None);
    let why = "a release, and earlier accesses may not be visible";
    let found = check(&function(&format!("{ENTRY}{}", release(""))), "gfx942").unwrap();
    assert!(found[0].starts_with(why), "{found:#?}");
    // One that awaits only part of what is under way is none.
    let found = check(
        &function(&format!("{ENTRY}{}", release("\ts_waitcnt vmcnt(1)\n"))),
        "gfx942",
    );
    assert!(found.unwrap()[0].starts_with(why));
    // Without a write-back, and with one of the device alone.
    for weak in ["", "\tbuffer_wbl2 sc1\n"] {
        let code = format!(
            "{STORE}{weak}\ts_waitcnt vmcnt(0)\n; tidegate: releases system\n\tglobal_store_dwordx2 v[4:5], v[6:7], off sc0 sc1\n{RETURN}"
        );
        wrong("gfx942", &code, Some(why));
    }
    // The write-back must be behind every store.
    let code = format!(
        "\tbuffer_wbl2 sc0 sc1\n\ts_waitcnt vmcnt(0)\n{STORE}\ts_waitcnt vmcnt(0)\n; tidegate: releases system\n\tglobal_store_dwordx2 v[4:5], v[6:7], off sc0 sc1\n{RETURN}"
    );
    wrong("gfx942", &code, Some(why));
}

#[test]
fn a_release_counts_stores_of_every_path() {
    // The round before has stored, on gfx11.
    let code = |wait: &str| {
        format!(
            "\ts_waitcnt_vscnt null, 0x0\n.L1:\n{wait}; tidegate: releases system\n\tglobal_store_b64 v[5:6], v[7:8], off\n\ts_cbranch_scc1 .L1\n"
        )
    };
    let why = "a release, and earlier accesses may not be visible";
    let wait = "\ts_waitcnt vmcnt(0) lgkmcnt(0)\n";
    wrong("gfx1100", &code(wait), Some(why));
    wrong(
        "gfx1100",
        &code(&format!("{wait}\ts_waitcnt_vscnt null, 0x0\n")),
        None,
    );
}

#[test]
fn nothing_is_under_way_at_a_barrier() {
    let why = "a barrier, and accesses of this wave may be under way";
    wrong(
        "gfx90a",
        &format!("{STORE}\ts_barrier\n{RETURN}"),
        Some(why),
    );
    wrong("gfx90a", &format!("{STORE}{RETURN}\ts_barrier\n"), None);
    // Only one of two paths waits.
    let code = format!("{STORE}\ts_cbranch_scc1 .L1\n{RETURN}.L1:\n\ts_barrier\n{RETURN}");
    wrong("gfx90a", &code, Some(why));
    // Shared memory counts, too.
    let shared =
        |wait: &str| format!("\tds_write_b32 v0, v1\n{wait}\ts_barrier\n\ts_waitcnt lgkmcnt(0)\n");
    wrong("gfx90a", &shared(""), Some(why));
    wrong("gfx90a", &shared("\ts_waitcnt lgkmcnt(0)\n"), None);
}

#[test]
fn an_acquire_waits_and_then_invalidates() {
    let acquire = |order: &str| {
        format!(
            "; tidegate: system\n\tglobal_load_dwordx2 v[0:1], v[2:3], off sc0 sc1\n{order}; tidegate: acquired system\n\ts_waitcnt vmcnt(0)\n"
        )
    };
    let (wait, invalidate) = ("\ts_waitcnt vmcnt(0)\n", "\tbuffer_inv sc0 sc1\n");
    let why = "an acquire that is not awaited, or does not invalidate";
    wrong("gfx942", &acquire(&format!("{wait}{invalidate}")), None);
    for weak in [
        wait.to_owned(),
        invalidate.to_owned(),
        format!("{invalidate}{wait}"),
        format!("{wait}\tbuffer_inv sc1\n"),
    ] {
        wrong("gfx942", &acquire(&weak), Some(why));
    }
}

#[test]
fn an_access_reaches_its_scope() {
    let why = "an access whose modifiers are not those of its scope";
    let load = |gpu: &str, modifiers: &str, fault| {
        let code = format!(
            "; tidegate: system\n\tglobal_load_dword v0, v[2:3], off {modifiers}\n{RETURN}"
        );
        wrong(gpu, &code, fault);
    };
    load("gfx942", "sc0 sc1", None);
    load("gfx942", "sc1", Some(why));
    load("gfx90a", "glc", None);
    load("gfx90a", "", Some(why));
    load("gfx1100", "glc", None);
    load("gfx1100", "", Some(why));
}

#[test]
fn an_access_with_a_scope_has_a_remark() {
    let why = "an access with a scope, without a remark";
    for access in [
        "global_atomic_add_x2 v[4:5], v[6:7], off sc1",
        "global_load_dword v0, v[2:3], off sc0 sc1",
        "global_store_dword v[2:3], v0, off sc0 sc1",
    ] {
        wrong("gfx942", &format!("\t{access}\n{RETURN}"), Some(why));
        let said = format!("; tidegate: system\n\t{access}\n{RETURN}");
        wrong("gfx942", &said, None);
    }
}

#[test]
fn a_load_behind_a_barrier_sees_what_the_other_half_has_stored() {
    let code = |between: &str| {
        format!(
            "\ts_waitcnt_vscnt null, 0x0\n\ts_barrier\n{between}\tglobal_load_b32 v0, v[2:3], off\n{RETURN}"
        )
    };
    wrong("gfx1100", &code("\tbuffer_gl0_inv\n"), None);
    let found = check(&function(&format!("{ENTRY}{}", code(""))), "gfx1100").unwrap();
    assert!(
        found[0].starts_with("a load behind a barrier, without the invalidation"),
        "{found:#?}"
    );
}

#[test]
fn registers_are_touched_when_their_values_have_come() {
    let why = "a register that may be under way";
    let two = |wait: &str, touched: &str| {
        format!(
            "\tglobal_load_dwordx2 v[4:5], v[0:1], off\n\tglobal_load_dword v6, v[0:1], off\n\ts_waitcnt {wait}\n\tv_mov_b32_e32 v9, {touched}\n{RETURN}"
        )
    };
    wrong("gfx942", &two("vmcnt(1)", "v5"), None);
    wrong("gfx942", &two("vmcnt(1)", "v6"), Some(why));
    wrong("gfx942", &two("vmcnt(2)", "v5"), Some(why));
    wrong("gfx942", &two("vmcnt(0)", "v6"), None);
    // Scalar loads come in any order.
    let scalar = |wait: &str| {
        format!(
            "\ts_load_dword s4, s[0:1], 0x0\n\ts_load_dword s5, s[0:1], 0x4\n\ts_waitcnt {wait}\n\ts_mov_b32 s6, s4\n\ts_waitcnt lgkmcnt(0)\n"
        )
    };
    wrong("gfx942", &scalar("lgkmcnt(0)"), None);
    wrong("gfx942", &scalar("lgkmcnt(1)"), Some(why));
    // Nothing is known of the caller's registers.
    let found = check(&function("\tv_mov_b32_e32 v9, v1\n"), "gfx942").unwrap();
    assert!(found[0].starts_with(why), "{found:#?}");
}

#[test]
fn a_fence_counts_until_something_else_is_stored() {
    let code = |between: &str| {
        format!(
            "\tbuffer_wbl2 sc0 sc1\n\ts_waitcnt vmcnt(0)\n\tbuffer_inv sc0 sc1\n; tidegate: fenced system\n{between}; tidegate: follows system\n\tglobal_atomic_add_x2 v[4:5], v[6:7], off sc1\n{RETURN}"
        )
    };
    wrong("gfx942", &code(""), None);
    wrong(
        "gfx942",
        &code("\tglobal_load_dword v0, v[2:3], off\n"),
        None,
    );
    wrong(
        "gfx942",
        &code(STORE),
        Some("an access that should be behind a fence"),
    );
}

#[test]
fn a_deleted_instruction_is_found_or_does_no_harm() {
    let wait = "\ts_waitcnt vmcnt(0)\n";
    let code = format!(
        "{ENTRY}{STORE}\tbuffer_wbl2 sc0 sc1\n{wait}{wait}; tidegate: releases system\n\tglobal_store_dword v[4:5], v6, off sc0 sc1\n{wait}"
    );
    let verdicts = verdicts(&function(&code), "gfx942").unwrap();
    // Found are the write-back, and the waits at both ends. The second of the two in the middle waits for nothing, and
    // does the same as the first if that is deleted.
    let said = format!("{verdicts:?}");
    assert!(
        said.starts_with("Verdicts { caches: 1, waits: 2, harmless: {Idle: "),
        "{said}"
    );
    assert!(
        said.contains("Later: ") && said.ends_with("survivors: [] }"),
        "{said}"
    );
}

#[test]
fn a_wait_that_comes_too_early_is_proved_harmless_until_something_depends_on_it() {
    let code = |between: &str| {
        format!(
            "{ENTRY}\tglobal_load_dword v4, v[0:1], off\n\ts_waitcnt vmcnt(0)\n{between}\ts_waitcnt vmcnt(0)\n\tv_mov_b32_e32 v9, v4\n"
        )
    };
    let said = |between: &str| {
        format!(
            "{:?}",
            verdicts(&function(&code(between)), "gfx942").unwrap()
        )
    };
    for plain in [
        "",
        "\tv_mov_b32_e32 v5, v6\n",
        "; tidegate: system\n\tglobal_load_dword v5, v[2:3], off sc0 sc1\n",
        "\ts_cbranch_scc1 .L1\n\tv_mov_b32_e32 v5, v6\n.L1:\n",
    ] {
        let said = said(plain);
        assert!(
            said.contains("Later: ") && said.ends_with("survivors: [] }"),
            "{said}"
        );
    }
    // The write-back is awaited by the second wait, but the check does not say whether it may overtake a load.
    let unproved = said("\tbuffer_wbl2 sc0 sc1\n");
    assert!(
        unproved.contains("this may depend on it: line 5, `buffer_wbl2"),
        "{unproved}"
    );
    // What depends on the wait is found.
    let found = said("\tv_mov_b32_e32 v5, v4\n\ts_barrier\n");
    assert!(
        !found.contains("Later: ") && found.ends_with("survivors: [] }"),
        "{found}"
    );
}

#[test]
fn the_check_says_what_it_does_not_know() {
    assert!(check(&function(ENTRY), "gfx803").is_err());
    assert!(check("", "gfx942").is_err());
    assert!(check(&function("; tidegate: releases everything\n"), "gfx942").is_err());
    assert!(check(&function("\ts_branch .L7\n"), "gfx942").is_err());
}
