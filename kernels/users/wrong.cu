// Kernels that must not compile, each with a part of the message of NVIDIA's compiler and of AMD's. `WRONG` says which one
// is compiled; 0 is none of them. For a check of `cargo xtask kernels`.

#include "tidegate.cuh"

using tidegate::Grid;
using tidegate::move;

extern "C" __global__ void kernel(tidegate::KernelInbox<double> in, tidegate::KernelOutbox<double> out, tidegate::Out<double> to, tidegate::OutSlots<double> slots,
                                  tidegate::LastSlots<double> last, double *x) {
#if WRONG == 0
  slots.put_value(to, 0, x[0]);
  last.complete();
  auto inbox = in.own(Grid());
  auto outbox = out.own(Grid());
  auto exposed = move(inbox).post();
  auto epoch = move(outbox).start();
  epoch.put_value(to, 0, x[0]);
  outbox = move(epoch).complete();
  inbox = move(exposed).wait();
  x[0] = inbox.read(0)[0];
  move(inbox).close();
  move(outbox).close();
#elif WRONG == 1
  // A put before the epoch has started.
  // NVIDIA: has no member "put_value"
  // AMD: no member named 'put_value' in 'tidegate::Outbox<double, tidegate::Grid>'
  out.own(Grid()).put_value(to, 0, x[0]);
#elif WRONG == 2
  // A slot is read while it is exposed.
  // NVIDIA: has no member "read"
  // AMD: no member named 'read' in 'tidegate::Exposed<double, tidegate::Grid>'
  x[0] = in.own(Grid()).post().read(0)[0];
#elif WRONG == 3
  // A second post before the wait.
  // NVIDIA: has no member "post"
  // AMD: no member named 'post' in 'tidegate::Exposed<double, tidegate::Grid>'
  in.own(Grid()).post().post();
#elif WRONG == 4
  // An epoch is started within an epoch.
  // NVIDIA: has no member "start"
  // AMD: no member named 'start' in 'tidegate::Access<double, tidegate::Grid>'
  out.own(Grid()).start().start();
#elif WRONG == 5
  // A half is closed in the middle of an epoch.
  // NVIDIA: has no member "close"
  // AMD: no member named 'close' in 'tidegate::Exposed<double, tidegate::Grid>'
  in.own(Grid()).post().close();
#elif WRONG == 6
  // A call that does not take its token.
  // NVIDIA: cannot be called on an lvalue
  // AMD: is an lvalue, but function has rvalue ref-qualifier
  auto inbox = in.own(Grid());
  inbox.post();
#elif WRONG == 7
  // A token is copied.
  // NVIDIA: cannot be referenced -- it is a deleted function
  // AMD: call to implicitly-deleted copy constructor of 'Inbox<double, tidegate::Grid>'
  auto inbox = in.own(Grid());
  auto other = inbox;
#elif WRONG == 8
  // One thread cannot own a half.
  // NVIDIA: a half is owned by a Block or by the Grid
  // AMD: a half is owned by a Block or by the Grid
  in.own(tidegate::Thread());
#elif WRONG == 9
  // A kernel completes a target that it has no right to.
  // NVIDIA: has no member "complete"
  // AMD: no member named 'complete' in 'tidegate::OutSlots<double>'
  slots.complete();
#elif WRONG == 10
  // A slot cannot be read, only a range.
  // NVIDIA: has no member "get_value"
  // AMD: no member named 'get_value' in 'tidegate::LastSlots<double>'
  x[0] = last.get_value(to, 0);
#elif WRONG == 11
  // A slot that was found in an outbox is read.
  // NVIDIA: no instance of overloaded function
  // AMD: no matching member function for call to 'read'
  auto inbox = in.own(Grid());
  x[0] = inbox.read(out.own(Grid()).find(to))[0];
#elif WRONG == 12
  // A put goes to a slot that was found in an inbox.
  // NVIDIA: no instance of overloaded function
  // AMD: no matching member function for call to 'slot'
  out.own(Grid()).start().put_value(in.own(Grid()).find(0), 0, x[0]);
#endif
}
