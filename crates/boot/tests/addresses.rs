//! Rank 0 may have several addresses. The others try them in turn, and the proof of the secret shows which one is
//! right.

#[path = "../../../tests/common/held.rs"]
mod held;

use std::net::TcpListener;
use tidegate_boot::{Config, TcpControl};
use tidegate_hal::control::Control;

#[test]
fn addresses_are_tried_by_turns() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Nothing listens at the first address, and the second is not a name.
    let held = held::Held::new();
    let nobody = format!("127.0.0.1:{}", held.port);
    let config = |rank| {
        let mut config = Config::new(rank, 2, &*nobody, *b"0123456789abcdef");
        config.also = vec!["no such name:1".into(), format!("127.0.0.1:{port}")];
        config
    };
    std::thread::scope(|scope| {
        let mut first = config(0);
        first.listener = Some(listener);
        let first = scope.spawn(|| meet(TcpControl::join(first).unwrap()));
        meet(TcpControl::join(config(1)).unwrap());
        first.join().unwrap();
    });
}

fn meet(control: TcpControl) {
    let said = vec![control.rank() as u8];
    let all = control.exchange("addresses", said).unwrap();
    assert_eq!(all, [[0], [1]]);
    control.leave();
}
