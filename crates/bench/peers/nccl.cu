// NCCL: grouped sends and receives on the stream, and its device interface (one kernel that stores to the peers' windows).
#include "nccl_device.cuh"
#include "nccl_pair.cuh"
#include "nccl_scopes.cuh"
#include "reduce.cuh"

// One group of 2 x 26 calls at most: NCCL makes one kernel of it.
class SendReceive final : public Exchange {
  public:
    SendReceive(ncclComm_t comm, const Layout& layout, bool registered, bool synchronised, bool begin_early)
        : layout_(layout), comm_(comm), synchronised_(synchronised), out_(comm, layout.packed_bytes(), registered),
          in_(comm, layout.packed_bytes(), registered) {
        graphs = !synchronised;
        launches = 1;
        early = begin_early;
        note = registered ? "buffers from ncclMemAlloc, registered" : "buffers registered by NCCL, in graphs, or not at all";
    }
    double* source() override { return out_.values(); }
    double* slots(int) override { return in_.values(); }
    void enqueue(cudaStream_t stream, int) override {
        NCCL(ncclGroupStart());
        for (const auto& m : layout_.messages) {
            NCCL(ncclSend(out_.values() + m.begin, m.values, ncclDouble, m.rank, comm_, stream));
            NCCL(ncclRecv(in_.values() + m.begin, m.values, ncclDouble, m.rank, comm_, stream));
        }
        NCCL(ncclGroupEnd());
        if (synchronised_) CUDA(cudaStreamSynchronize(stream));
    }

  private:
    const Layout& layout_;
    ncclComm_t comm_;
    bool synchronised_;
    NcclMemory out_, in_;
};

#ifdef PEER_NCCL_PUTS
// A put with a signal for each message, and one wait for the signals of all neighbours. Two buffers in turn: a rank whose
// wait of exchange k + 1 is over knows that its neighbours have passed exchange k.
class Puts final : public Exchange {
  public:
    Puts(ncclComm_t comm, const Layout& layout, bool begin_early)
        : layout_(layout), out_(comm, layout.packed_bytes()), in_(comm, 2 * layout.packed_bytes()) {
        period = 2;
        early = begin_early;
        behind_kernel = ends_in_kernel = false;
        for (const auto& m : layout.messages) {
            const auto same = [&](const ncclWaitSignalDesc_t& one) { return one.peer == m.rank; };
            const auto found = std::find_if(signals_.begin(), signals_.end(), same);
            if (found == signals_.end()) signals_.push_back({1, m.rank, 0, 0});
            else found->opCnt += 1;
        }
    }
    double* source() override { return out_.values(); }
    double* slots(int k) override { return in_.values() + k % 2 * layout_.packed(); }
    void enqueue(cudaStream_t stream, int k) override {
        NCCL(ncclGroupStart());
        for (const auto& m : layout_.messages) {
            const size_t to = (k % 2 * layout_.packed() + m.begin_there) * sizeof(double);
            in_.put(out_.values() + m.begin, m.bytes(), m.rank, to, stream);
        }
        NCCL(ncclGroupEnd());
        in_.wait(signals_, stream);
    }

  private:
    const Layout& layout_;
    PutWindow out_, in_;
    std::vector<ncclWaitSignalDesc_t> signals_;
};
#endif

// One call, which is one kernel; with buffers that are registered, and with others.
static void reduce_rows(Job& job, const Options& options, ncclComm_t comm, cudaStream_t stream, Report& report) {
    const size_t most = sum_sizes.back();
    for (bool registered : {false, true}) {
        NcclMemory out(comm, most, registered), in(comm, most, registered);
        for (size_t bytes : sum_sizes) {
            Sum sum;
            sum.row = registered ? "all_reduce, registered" : "all_reduce";
            sum.launches = 1;
            sum.from = out.values();
            sum.to = in.values();
            sum.enqueue = [&](cudaStream_t s) {
                NCCL(ncclAllReduce(out.values(), in.values(), bytes / sizeof(double), ncclDouble, ncclSum, comm, s));
            };
            sum_rows(job, options, stream, report, sum, bytes);
        }
    }
}

static int peer(Job& job, const Options& options) {
    Report report("nccl", options, job);
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    if (job.size > devices) throw std::runtime_error("NCCL takes no two ranks on one GPU");
    CUDA(cudaSetDevice(job.rank));
    cudaDeviceProp device{};
    CUDA(cudaGetDeviceProperties(&device, job.rank));
    ncclUniqueId id{};
    if (job.rank == 0) NCCL(ncclGetUniqueId(&id));
    id = job.from_first(id);
    ncclComm_t comm = nullptr;
    NCCL(ncclCommInitRank(&comm, job.size, id, job.rank));
    cudaStream_t stream = urgent_stream();

    if (options.mode == "pair") {
        if (job.size != 2) throw std::runtime_error("--mode pair needs two ranks");
        pair_rows(job, options, comm, stream, report);
#ifdef PEER_NCCL_PUTS
        put_rows(job, options, comm, stream, report);
#endif
    } else if (options.mode == "device") {
        if (job.size != 2) throw std::runtime_error("--mode device needs two ranks");
#ifdef PEER_NCCL_SCOPES
        scope_rows(job, options, comm, stream, report);
#else
        throw std::runtime_error("this NCCL has no device interface");
#endif
    } else if (options.mode == "reduce") {
        reduce_rows(job, options, comm, stream, report);
    } else {
        const Layout layout(options.problem, job.rank, static_cast<unsigned>(device.multiProcessorCount));
        const auto rows = [&](const std::string& name, const std::function<std::unique_ptr<Exchange>()>& make) {
            run_rows(job, options, layout, stream, report, name, make);
        };
        // Early or not matters where there are kernels besides.
        const std::vector<bool> launched = options.mode == "share" ? std::vector<bool>{false, true} : std::vector<bool>{false};
        for (bool registered : {false, true}) {
            const std::string how = registered ? ", registered" : "";
            for (bool early : launched) {
                rows("send/recv" + how + (early ? ", early" : ""),
                     [&] { return std::make_unique<SendReceive>(comm, layout, registered, false, early); });
            }
            rows("send/recv" + how + ", host sync",
                 [&] { return std::make_unique<SendReceive>(comm, layout, registered, true, false); });
        }
#ifdef PEER_NCCL_PUTS
        for (bool early : launched) {
            rows(early ? "put_signal, early" : "put_signal", [&] { return std::make_unique<Puts>(comm, layout, early); });
        }
#endif
#ifdef PEER_NCCL_DEVICE
        struct Way {
            const char* name;
            Device::Kind kind;
            bool exposed;
        };
        std::vector<Way> ways = {{"device, barrier, ", Device::Barrier, false},
                                 {"device, own words, ", Device::Words, false},
                                 {"device, own words, exposure, ", Device::Words, true}};
        if (options.mode == "share") {
            ways.push_back({"device, own words, gathers, ", Device::Gathers, false});
            ways.push_back({"device, own words, exposure, gathers, ", Device::Gathers, true});
        }
        for (const auto& way : ways) {
            for (const auto& shape : options.shapes()) {
                rows(way.name + shape.name(),
                     [&] { return std::make_unique<Device>(job, comm, layout, way.kind, way.exposed, shape); });
            }
        }
#endif
    }
    CUDA(cudaDeviceSynchronize());
    job.barrier();
    NcclMemory::finish(comm);
    return report.exit_code();
}

int main(int argc, char** argv) {
    try {
        const Options options = Options::parse(argc, argv);
        // No multicast: it is not measured here, and not every fabric has it.
        setenv("NCCL_NVLS_ENABLE", "0", 1);
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
        return ForkJob::run(options.ranks, options.limit_s, [&](ForkJob& job) { return peer(job, options); });
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
        return 2;
    }
}
