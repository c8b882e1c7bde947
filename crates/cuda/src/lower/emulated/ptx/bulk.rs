//! The bulk engine: a proxy of its own.

use super::{Item, TEXTS, entries, functions, named};

/// The bulk engine's copies are ordered with everything that threads do before and after.
#[test]
fn the_bulk_engine_is_fenced() {
    let (text, new) = TEXTS[1];
    let functions = functions(text);
    let calls = |caller: &str, callee: &str| {
        let (_, items) = named(&functions, caller)[0];
        let is = |item: &Item| matches!(item, Item::Call(name) if name.contains(callee));
        items.iter().any(is)
    };
    // One kernel alone uses it, and for teams of blocks.
    let [plain, bulk] = entries(&functions, new)[..] else {
        panic!("there are two kernels");
    };
    let calls_bulk = |item: &Item| matches!(item, Item::Call(name) if name.contains("BulkBlock"));
    assert!(!plain.1.iter().any(calls_bulk));
    assert!(bulk.1.iter().any(calls_bulk));
    assert!(calls("run_stepsI9BulkBlock", "bulk_copy"));
    assert!(!calls("run_stepsI5Block", "bulk_copy") && !calls("run_stepsI4Warp", "bulk_copy"));
    // In the order of the text, which is the order of a turn of its loop.
    let (name, items) = named(&functions, "bulk_copy")[0];
    let mut kinds: Vec<&str> = Vec::new();
    for item in items {
        let Item::Primitive(text) = item else {
            panic!("{name}: {item:?}");
        };
        // Without operands.
        let kind = match text.strip_prefix("{ .reg .pred p; ") {
            Some(rest) => rest.split(' ').next(),
            None if text.starts_with("cp.async.bulk.wait_group") => Some(text.as_str()),
            None => text.split([' ', ';']).next(),
        };
        let kind = kind.unwrap_or("");
        if kinds.last() != Some(&kind) {
            kinds.push(kind);
        }
    }
    assert_eq!(
        kinds,
        [
            "mbarrier.init.shared::cta.b64",
            "fence.proxy.async",
            // A place that is used again has been read.
            "cp.async.bulk.wait_group.read 0;",
            "mbarrier.arrive.expect_tx.shared::cta.b64",
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
            // A piece that is sent has arrived.
            "mbarrier.try_wait.parity.shared::cta.b64",
            "cp.async.bulk.global.shared::cta.bulk_group",
            "cp.async.bulk.commit_group",
            "cp.async.bulk.wait_group 0;",
            "fence.proxy.async",
            "mbarrier.inval.shared::cta.b64",
        ]
    );
}
