use std::sync::Arc;

use tidegate::host::Host;
use tidegate::hal::control::Control;
use tidegate::host::prelude::*;

fn forged(control: Arc<dyn Control>) -> Result<World> {
    World::from_control(control, Host::for_threads())
}

fn main() {
    drop(forged);
}
