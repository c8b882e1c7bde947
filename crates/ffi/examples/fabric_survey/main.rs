//! What the providers of this machine can do on loopback, and how long a put with a signal takes.
//!
//! ```text
//! cargo run --release -p tidegate-ffi --example fabric_survey [provider ...]
//! ```

mod latency;

use tidegate_ffi::fabric::*;

/// Those that may work without hardware.
const PROVIDERS: [&str; 9] = [
    "sockets",
    "tcp;ofi_rxm",
    "tcp",
    "net",
    "shm",
    "sm2",
    "udp;ofi_rxd",
    "psm2",
    "psm3",
];

/// What can be waited for, of a queue and of a counter.
fn waits(domain: &std::sync::Arc<Domain>) -> String {
    let objects = [
        ("none", WaitObject::NONE),
        ("unspec", WaitObject::UNSPEC),
        ("fd", WaitObject::FD),
        ("yield", WaitObject::YIELD),
    ];
    let names = |can: &dyn Fn(WaitObject) -> bool| {
        let known = objects.iter().filter(|(_, object)| can(*object));
        known.map(|(name, _)| *name).collect::<Vec<_>>().join(",")
    };
    format!(
        "queue {} counter {}",
        names(&|object| CompletionQueue::open(domain, 0, object).is_ok()),
        names(&|object| Counter::open(domain, object).is_ok()),
    )
}

fn survey(library: &Library, name: &str) -> Result<Info> {
    let base = Hints::new().provider(name);
    let find = |hints: &Hints| {
        let local = library.query(hints, Location::local("127.0.0.1"));
        local.or_else(|_| library.query(hints, Location::ANY))
    };
    let both = find(&base.clone().caps(Caps::RMA | Caps::ATOMIC));
    let rma = find(&base.clone().caps(Caps::RMA))?;
    let info = both.as_ref().unwrap_or(&rma)[0].clone();
    println!(
        "\n{} on {} ({})",
        info.provider(),
        info.domain(),
        info.fabric()
    );
    println!("  caps       {:?}", info.caps());
    println!("  mode       {:?}, {:?}", info.mode(), info.mr_mode());
    println!(
        "  progress   data {:?}, control {:?}",
        info.data_progress(),
        info.control_progress()
    );
    println!(
        "  sizes      inject {}, message {}, ordered {}, cq data {}, key {}, queue {}",
        info.inject_size(),
        info.max_msg_size(),
        info.max_order_waw_size(),
        info.cq_data_size(),
        info.key_size(),
        info.tx_size()
    );
    let order = |order| find(&base.clone().caps(Caps::RMA).order(order)).is_ok();
    println!(
        "  order      offered {:?}; on demand: WAW {}, with atomics {}, SAW {}, WAW of 64 KiB {}",
        info.tx_order(),
        order(Order::WAW),
        find(
            &base
                .clone()
                .caps(Caps::RMA | Caps::ATOMIC)
                .order(Order::WAW)
        )
        .is_ok(),
        order(Order::SAW),
        find(
            &base
                .clone()
                .caps(Caps::RMA)
                .order(Order::WAW)
                .ordered_up_to(64 << 10)
        )
        .is_ok()
    );
    let caps = |caps| find(&base.clone().caps(caps)).is_ok();
    println!(
        "  on demand  atomics {}, remote counters {}, fence {}, hmem {}, trigger {}",
        both.is_ok(),
        caps(Caps::RMA | Caps::RMA_EVENT),
        caps(Caps::RMA | Caps::FENCE),
        caps(Caps::RMA | Caps::HMEM),
        caps(Caps::RMA | Caps::TRIGGER),
    );
    let auto = find(&base.clone().caps(Caps::RMA).manual_progress(false)).is_ok();
    let manual = find(&base.clone().caps(Caps::RMA).manual_progress(true)).is_ok();
    println!("             progress auto {auto}, manual {manual}");
    let domain = Domain::open(&Fabric::open(&info)?, &info)?;
    println!("  waits      {}", waits(&domain));
    println!(
        "  u64 sum    {:?}, fetched {:?}",
        domain.query_atomic::<u64>(AtomicOp::SUM, false),
        domain.query_atomic::<u64>(AtomicOp::SUM, true)
    );
    let limit = std::time::Duration::from_secs(1);
    println!("  deferred   {:?}", domain.probe_deferred(limit));
    Ok(info)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: no other thread runs yet.
    unsafe { set_environment() };
    let library = Library::load()?;
    println!("{} is libfabric {:?}", library.name(), library.version());
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = match asked.as_slice() {
        [] => PROVIDERS.to_vec(),
        asked => asked.iter().map(String::as_str).collect(),
    };
    for name in names {
        match survey(&library, name) {
            Ok(info) => latency::measure(&library, &info),
            Err(error) => println!("\n{name}: {error}"),
        }
    }
    println!("\nobjects that could not be closed: {}", leaked_objects());
    Ok(())
}
