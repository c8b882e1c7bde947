// NCCL: grouped sends and receives on the stream, and its device interface (one kernel that stores to the peers' windows).
#include "reduce.cuh"
#include "share.cuh"

#include <nccl.h>
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#define PEER_NCCL_DEVICE 1
#include <nccl_device.h>
#endif

static void nccl_check(ncclResult_t code, const char* what, int line) {
    if (code == ncclSuccess) return;
    throw std::runtime_error(std::string("nccl.cu:") + std::to_string(line) + ": " + what + ": " + ncclGetErrorString(code) +
                             ": " + ncclGetLastError(nullptr));
}
#define NCCL(call) nccl_check((call), #call, __LINE__)

// Memory from NCCL's allocator, so that it can be registered and mapped by the others.
class NcclMemory {
  public:
    NcclMemory(ncclComm_t comm, size_t bytes, bool registered) : comm_(comm) {
        NCCL(ncclMemAlloc(&at_, bytes));
        CUDA(cudaMemset(at_, 0, bytes));
        if (registered) NCCL(ncclCommRegister(comm, at_, bytes, &handle_));
    }
    NcclMemory(const NcclMemory&) = delete;
    ~NcclMemory() {
        if (handle_) ncclCommDeregister(comm_, handle_);
        ncclMemFree(at_);
    }
    double* values() const { return static_cast<double*>(at_); }

  private:
    ncclComm_t comm_;
    void* at_ = nullptr;
    void* handle_ = nullptr;
};

// One group of 2 x 26 calls at most: NCCL makes one kernel of it.
class SendReceive final : public Exchange {
  public:
    SendReceive(ncclComm_t comm, const Layout& layout, bool registered, bool synchronised, bool begin_early)
        : layout_(layout), comm_(comm), synchronised_(synchronised), out_(comm, layout.packed_bytes(), registered),
          in_(comm, layout.packed_bytes(), registered) {
        graphs = !synchronised;
        launches = 1;
        early = begin_early;
        note = registered ? "buffers from ncclMemAlloc, registered" : "buffers not registered";
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

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
#define PEER_NCCL_PUTS 1
// A window of all ranks, and one-sided calls to it: the data goes by copy engines, and its signal behind it.
class PutWindow {
  public:
    PutWindow(ncclComm_t comm, size_t bytes) : comm_(comm), memory_(comm, bytes, false) {
        NCCL(ncclCommWindowRegister(comm, memory_.values(), bytes, &window_, NCCL_WIN_COLL_SYMMETRIC));
        if (window_ == nullptr) throw std::runtime_error("NCCL has no symmetric windows here");
    }
    PutWindow(const PutWindow&) = delete;
    ~PutWindow() { ncclCommWindowDeregister(comm_, window_); }
    double* values() const { return memory_.values(); }
    void put(const void* from, size_t bytes, int rank, size_t to, cudaStream_t stream) const {
        NCCL(ncclPutSignal(from, bytes, ncclChar, rank, window_, to, 0, 0, 0, comm_, stream));
    }
    void wait(std::vector<ncclWaitSignalDesc_t>& signals, cudaStream_t stream) const {
        NCCL(ncclWaitSignal(static_cast<int>(signals.size()), signals.data(), comm_, stream));
    }

  private:
    ncclComm_t comm_;
    NcclMemory memory_;
    ncclWindow_t window_ = nullptr;
};

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

#ifdef PEER_NCCL_DEVICE
// Every piece is stored straight into the receiver's window by one block, and a barrier of all ranks, block by block, ends it.
// Two buffers in turn: a rank that passes the barrier of exchange k + 1 has unpacked the messages of exchange k.
static __global__ void __launch_bounds__(1024)
    device_barrier(const __grid_constant__ ncclDevComm comm, ncclWindow_t window, const double* source, size_t stride,
                   unsigned long long* epochs) {
    begin_early();
    const unsigned long long epoch = epochs[blockIdx.x];
    ncclLsaBarrierSession<ncclCoopCta> barrier{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x};
    for (int b = static_cast<int>(blockIdx.x); b < pieces.blocks; b += static_cast<int>(gridDim.x)) {
        const Piece piece(b);
        auto* slots = static_cast<double*>(ncclGetLsaPointer(window, 0, piece.route->rank)) + (epoch & 1) * stride;
        block_copy(slots + piece.to, source + piece.from, piece.values * sizeof(double));
    }
    barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
    if (threadIdx.x == 0) epochs[blockIdx.x] = epoch + 1;
}

// The same, with words of our own in the window instead of the barrier: each block adds to a word of the receiver, and one
// block waits for all words. `Gathers`: the messages are gathered from the block, by a list of places; `source` is the block.
template <bool Gathers>
static __global__ void __launch_bounds__(1024)
    device_signal(ncclWindow_t window, const double* source, const unsigned* list, size_t stride, size_t words,
                  unsigned long long* epochs) {
    if (Gathers && blockIdx.x > 0) {
        const Piece piece(blockIdx.x - 1);
        auto* slots = static_cast<double*>(ncclGetLsaPointer(window, 0, piece.route->rank)) + piece.to;
        unsigned long long epoch = 0;
        block_gather(source, list + piece.from, piece.values, [&] {
            begin_early();
            epoch = epochs[blockIdx.x];
            return slots + (epoch & 1) * stride;
        });
        __syncthreads();
        if (threadIdx.x == 0) {
            epochs[blockIdx.x] = epoch + 1;
            const auto* r = piece.route;
            release_add(static_cast<uint64_t*>(ncclGetLsaPointer(window, words, r->rank)) + 16 * r->there, 1);
        }
        return;
    }
    begin_early();
    const unsigned long long epoch = epochs[blockIdx.x];
    if (blockIdx.x == 0) {
        const auto* mine = static_cast<const uint64_t*>(ncclGetLocalPointer(window, words));
        if (threadIdx.x < static_cast<unsigned>(pieces.count)) {
            const auto& r = pieces.route[threadIdx.x];
            acquire_at_least(mine + 16 * r.here, (epoch + 1) * r.pieces);
        }
    } else {
        const Piece piece(blockIdx.x - 1);
        auto* slots = static_cast<double*>(ncclGetLsaPointer(window, 0, piece.route->rank)) + (epoch & 1) * stride;
        block_copy(slots + piece.to, source + piece.from, piece.values * sizeof(double));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        epochs[blockIdx.x] = epoch + 1;
        if (blockIdx.x > 0) {
            const auto* r = Piece(blockIdx.x - 1).route;
            release_add(static_cast<uint64_t*>(ncclGetLsaPointer(window, words, r->rank)) + 16 * r->there, 1);
        }
    }
}

class Device final : public Exchange {
  public:
    enum Kind { Barrier, Words, Gathered };

    Device(Job& job, ncclComm_t comm, const Layout& layout, Kind kind, int limit, int threads, bool begin_early)
        : comm_(comm), kind_(kind), threads_(threads), stride_(layout.packed()),
          out_(comm, layout.packed_bytes(), false), in_(comm, 2 * layout.packed_bytes() + 26 * 128, false) {
        period = 2;
        launches = 1;
        early = begin_early;
        gathers = kind == Gathered;
        if (gathers) places_ = std::make_unique<PackedFrom>(layout);
        const Pieces cut(layout, limit);
        use(cut);
        // All ranks must have equally many blocks; pieces are dealt out to them.
        blocks_ = kind == Barrier ? static_cast<int>(std::min(job.max(cut.blocks), 128.0)) : cut.blocks + 1;
        NCCL(ncclCommWindowRegister(comm, in_.values(), 2 * layout.packed_bytes() + 26 * 128, &window_,
                                    NCCL_WIN_COLL_SYMMETRIC));
        if (window_ == nullptr) throw std::runtime_error("NCCL has no symmetric windows here");
        ncclDevCommRequirements wants{};
        wants.lsaMultimem = false;
        wants.lsaBarrierCount = blocks_;
        NCCL(ncclDevCommCreate(comm, &wants, &device_));
        if (ncclTeamLsa(comm).nRanks != job.size) throw std::runtime_error("not all ranks can store to each other");
        CUDA(cudaMalloc(&epochs_, blocks_ * sizeof(*epochs_)));
        CUDA(cudaMemset(epochs_, 0, blocks_ * sizeof(*epochs_)));
    }
    ~Device() override {
        ncclDevCommDestroy(comm_, &device_);
        ncclCommWindowDeregister(comm_, window_);
        cudaFree(epochs_);
    }
    double* source() override { return out_.values(); }
    double* slots(int k) override { return in_.values() + k % 2 * stride_; }
    void from(const double* block) override { block_ = block; }
    void enqueue(cudaStream_t stream, int) override {
        const unsigned blocks = static_cast<unsigned>(blocks_);
        const size_t words = 2 * stride_ * sizeof(double);
        const double* packed = out_.values();
        switch (kind_) {
            case Barrier:
                launch(device_barrier, blocks, threads_, stream, early, device_, window_, packed, stride_, epochs_);
                break;
            case Words:
                launch(device_signal<false>, blocks, threads_, stream, early, window_, packed, nullptr, stride_, words, epochs_);
                break;
            case Gathered:
                launch(device_signal<true>, blocks, threads_, stream, early, window_, block_, places_->list(), stride_, words,
                       epochs_);
                break;
        }
    }

  private:
    ncclComm_t comm_;
    Kind kind_;
    int threads_, blocks_ = 0;
    size_t stride_;
    NcclMemory out_, in_;
    std::unique_ptr<PackedFrom> places_;
    const double* block_ = nullptr;
    ncclWindow_t window_ = nullptr;
    ncclDevComm device_{};
    unsigned long long* epochs_ = nullptr;
};
#endif

static __global__ void write_words(unsigned long long* to, size_t count, unsigned long long seed) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) to[i] = pattern(0, 0, i, seed);
}
static __global__ void check_words(const unsigned long long* at, size_t count, unsigned long long seed,
                                   unsigned long long* wrong) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        if (at[i] != pattern(0, 0, i, seed)) atomicAdd(wrong, 1ull);
    }
}

// Two ranks: one way of a ping-pong, and a stream of messages.
static void pair_rows(Job& job, const Options& options, ncclComm_t comm, cudaStream_t stream, Report& report) {
    const size_t most = 64 << 20;
    NcclMemory out(comm, most, true), in(comm, most, true);
    auto* a = reinterpret_cast<unsigned long long*>(out.values());
    auto* b = reinterpret_cast<unsigned long long*>(in.values());
    unsigned long long* wrong = nullptr;
    CUDA(cudaMalloc(&wrong, 8));
    CUDA(cudaMemset(wrong, 0, 8));
    const int other = 1 - job.rank;
    unsigned long long seed = 0, bad = 0;
    for (size_t bytes : {8ul, 64ul, 512ul, 4096ul, 32768ul, 262144ul, 2097152ul, 16777216ul, 67108864ul}) {
        for (bool ping : {true, false}) {
            const int repeats = bytes <= 262144 ? 100 : 10;
            Timed timed;
            timed.units = repeats;
            timed.prepare = [&] {
                ++seed;
                write_words<<<64, 256, 0, stream>>>(a, bytes / 8, seed);
                CUDA(cudaMemsetAsync(b, 0, bytes, stream));
            };
            timed.unit = [&] {
                if (ping && job.rank == 1) NCCL(ncclRecv(b, bytes, ncclChar, other, comm, stream));
                if (job.rank == 0 || ping) NCCL(ncclSend(a, bytes, ncclChar, other, comm, stream));
                if (job.rank == 0 && ping) NCCL(ncclRecv(b, bytes, ncclChar, other, comm, stream));
                if (job.rank == 1 && !ping) NCCL(ncclRecv(b, bytes, ncclChar, other, comm, stream));
            };
            timed.check = [&] {
                if (ping || job.rank == 1) check_words<<<64, 256, 0, stream>>>(b, bytes / 8, seed, wrong);
                CUDA(cudaMemcpyAsync(&bad, wrong, 8, cudaMemcpyDeviceToHost, stream));
                CUDA(cudaStreamSynchronize(stream));
                return bad == 0;
            };
            Row row = time_rounds(job, options, stream, timed);
            row.row = ping ? "send and receive, one way" : "send after send";
            if (ping) {
                for (double* t : {&row.us, &row.least, &row.most}) *t /= 2;
            }
            row.more = {{"bytes", static_cast<double>(bytes)}, {"gbps", bytes / row.us * 1e-3}};
            report.add(row);
        }
    }
    CUDA(cudaFree(wrong));
}

#ifdef PEER_NCCL_PUTS
// The same by puts with signals: one way of a ping-pong, on the stream and in a graph of 20.
static void put_rows(Job& job, const Options& options, ncclComm_t comm, cudaStream_t stream, Report& report) {
    const size_t most = 64 << 20;
    PutWindow out(comm, most), in(comm, most);
    auto* a = reinterpret_cast<unsigned long long*>(out.values());
    auto* b = reinterpret_cast<unsigned long long*>(in.values());
    unsigned long long* wrong = nullptr;
    CUDA(cudaMalloc(&wrong, 8));
    CUDA(cudaMemset(wrong, 0, 8));
    const int other = 1 - job.rank;
    std::vector<ncclWaitSignalDesc_t> signal = {{1, other, 0, 0}};
    unsigned long long seed = 0, bad = 0;
    for (size_t bytes : {8ul, 64ul, 512ul, 4096ul, 32768ul, 262144ul, 2097152ul, 16777216ul, 67108864ul}) {
        for (int in_graph : {0, 20}) {
            const auto ping = [&] {
                if (job.rank == 1) in.wait(signal, stream);
                in.put(a, bytes, other, 0, stream);
                if (job.rank == 0) in.wait(signal, stream);
            };
            std::unique_ptr<Graph> graph;
            if (in_graph > 0) {
                graph = std::make_unique<Graph>(stream, [&] {
                    for (int k = 0; k < in_graph; ++k) ping();
                });
                job.barrier();
            }
            Timed timed;
            timed.per_unit = std::max(in_graph, 1);
            timed.units = (bytes <= 262144 ? 100 : 20) / timed.per_unit;
            timed.prepare = [&] {
                ++seed;
                write_words<<<64, 256, 0, stream>>>(a, bytes / 8, seed);
                CUDA(cudaMemsetAsync(b, 0, bytes, stream));
                CUDA(cudaStreamSynchronize(stream));
                job.barrier();
            };
            timed.unit = [&] {
                if (graph) graph->launch(stream);
                else ping();
            };
            timed.check = [&] {
                check_words<<<64, 256, 0, stream>>>(b, bytes / 8, seed, wrong);
                CUDA(cudaMemcpyAsync(&bad, wrong, 8, cudaMemcpyDeviceToHost, stream));
                CUDA(cudaStreamSynchronize(stream));
                return bad == 0;
            };
            Row row = time_rounds(job, options, stream, timed);
            row.row = std::string("put_signal and wait_signal, one way") + (graph ? ", graph of 20" : "");
            for (double* t : {&row.us, &row.least, &row.most}) *t /= 2;
            row.more = {{"bytes", static_cast<double>(bytes)}, {"gbps", bytes / row.us * 1e-3}};
            report.add(row);
        }
    }
    CUDA(cudaFree(wrong));
}
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
        std::vector<std::pair<const char*, Device::Kind>> kinds = {{"device, barrier, ", Device::Barrier},
                                                                   {"device, own words, ", Device::Words}};
        if (options.mode == "share") kinds.emplace_back("device, own words, gathers, ", Device::Gathered);
        for (const auto& [name, kind] : kinds) {
            for (const auto& shape : options.shapes()) {
                rows(name + shape.name(), [&, kind = kind] {
                    return std::make_unique<Device>(job, comm, layout, kind, shape.blocks, shape.threads, shape.early);
                });
            }
        }
#endif
    }
    CUDA(cudaDeviceSynchronize());
    job.barrier();
    ncclCommDestroy(comm);
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
