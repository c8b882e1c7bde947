use tidegate::error::DeviceError;
use tidegate::host::HostStream;
use tidegate::host::prelude::*;
use tidegate::kernel::{Foreign, Parameters};

type Library = Foreign<fn(&HostStream, &Parameters) -> std::result::Result<(), DeviceError>>;

fn receive<'s>(s: &Stream<'s>, library: Library, inbox: &mut Inbox<'s, f64>) -> Result<()> {
    s.launch(library, (inbox.lend(), 1.0)) // wrong
    // right: s.launch(library, (inbox.view(), 1.0))
}

fn send<'s>(s: &Stream<'s>, library: Library, outbox: Outbox<'s, f64>, to: Out<f64>) -> Result<Outbox<'s, f64>> {
    let mut outbox = outbox; // wrong
    s.launch(library, (outbox.lend(), to))?; // wrong
    Ok(outbox) // wrong
    // right: let mut opened = outbox.open(s)?;
    // right: s.launch(library, (opened.slots(), to))?;
    // right: opened.complete(s)
}

pub fn main() -> Result<()> {
    let _ = (receive, send);
    Ok(())
}
