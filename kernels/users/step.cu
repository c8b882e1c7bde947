// A user's source for AMD GPUs. It includes `tidegate.cuh` and no other file of ours, and has types of its own whose
// names ours have, too. For a check that it compiles (`cargo xtask kernels`).

#include "tidegate.cuh"

typedef unsigned char u8;
typedef unsigned u32;
typedef unsigned long long u64;

struct alignas(double) Point {
    double x[3];
};

extern "C" __global__ void step(double *x, u64 len, tidegate::LastSlots<double> out, tidegate::Out<double> to) {
    for (u64 i = tidegate::Grid().rank(); i < len; i += tidegate::Grid().size()) {
        x[i] += 1;
        out.put_value(to, i, x[i]);
    }
    __syncthreads();
    out.complete();
}

extern "C" __global__ void points(const Point *x, u64 len, tidegate::AllSlots<Point> out, tidegate::Out<Point> to) {
    out.put(tidegate::Block(), to, 0, x, len);
    out.put(tidegate::Warp(), to, 0, x, len < tidegate::Warp::width ? len : tidegate::Warp::width);
    if (len) out.slot(to).put_value(0, x[0]);
    out.complete();
}

extern "C" __global__ void points_there(Point *x, u64 len, tidegate::AllRanges<Point> out, tidegate::Out<Point> of) {
    out.get(tidegate::Block(), of, 0, x, len);
    if (len) x[0] = out.get_value(of, 0);
    out.complete();
}

extern "C" __global__ void first(const tidegate::Slot *slots, u64 count, double *x, u64 len) {
    if (count && len && slots[0].len) x[0] = tidegate::current<double>(slots[0])[0];
}

extern "C" __global__ void pass(double *x, u64 len, tidegate::KernelInbox<double> in, u32 from, tidegate::KernelOutbox<double> out, tidegate::Out<double> to, u32 times) {
    tidegate::Grid all;
    auto inbox = in.own(all);
    auto outbox = out.own(all);
    while (times-- && !inbox.failed()) {
        auto exposed = tidegate::move(inbox).post();
        auto epoch = tidegate::move(outbox).start();
        for (u64 i = all.rank(); i < len; i += all.size()) epoch.put_value(to, i, x[i]);
        outbox = tidegate::move(epoch).complete();
        inbox = tidegate::move(exposed).wait();
        const double *came = inbox.read(from);
        for (u64 i = all.rank(); i < len && i < inbox.len_of(from); i += all.size()) x[i] = came[i];
    }
    tidegate::move(inbox).close();
    tidegate::move(outbox).close();
}
