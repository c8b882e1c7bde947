// The best case of a GPU-aware MPI on one host for post, start, put, complete, wait, without the MPI: peers' memory is
// mapped (CUDA IPC), flags are in shared host memory, and the host waits for the stream between the steps.
//
// It stands in for GPU-aware active RMA where the MPI at hand is not GPU-aware, and it is a generous stand-in: no matching, no
// progress engine, no registration cache.
#include "share.cuh"

#include <immintrin.h>

// A line of its own for each flag.
struct alignas(64) Flag {
    std::atomic<uint64_t> value;
};

struct Flags {
    Flag exposed[ForkJob::max_ranks][26];  // of an origin: its target at this direction has posted
    Flag arrived[ForkJob::max_ranks][26];  // of a target: the origin at this direction is complete
};
static_assert(sizeof(Flags) <= ForkJob::user_bytes, "flags do not fit");

struct Targets {
    double* slots[26];  // by route
};

static __global__ void __launch_bounds__(1024) copy_all(const double* source, const __grid_constant__ Targets targets) {
    const Piece piece(blockIdx.x);
    const auto route = pieces.of_block[blockIdx.x];
    block_copy(targets.slots[route] + piece.to, source + piece.from, piece.values * sizeof(double));
}

class HostRma final : public Exchange {
  public:
    // How the puts are done.
    enum How { OneStream, Streams, Kernel };

    HostRma(ForkJob& job, const Layout& layout, How how, int limit, int threads)
        : job_(job), layout_(layout), how_(how), pieces_(layout, limit), threads_(threads),
          flags_(static_cast<Flags*>(job.user_memory())) {
        graphs = false;
        const auto peers = layout.messages.size();
        launches = how == Kernel ? 1 : static_cast<int>(peers);
        note = "CUDA IPC, flags in host memory";
        if (how == Kernel) note += ", " + std::to_string(pieces_.blocks) + " pieces";
        use(pieces_);
        CUDA(cudaMalloc(&out_, layout.packed_bytes()));
        CUDA(cudaMalloc(&in_, layout.packed_bytes()));
        CUDA(cudaMemset(in_, 0, layout.packed_bytes()));
        cudaIpcMemHandle_t mine;
        CUDA(cudaIpcGetMemHandle(&mine, in_));
        const auto handles = job.gathered(mine);
        for (size_t i = 0; i < peers; ++i) {
            void* mapped = nullptr;
            CUDA(cudaIpcOpenMemHandle(&mapped, handles[layout.messages[i].rank], cudaIpcMemLazyEnablePeerAccess));
            targets_.slots[i] = static_cast<double*>(mapped);
            if (how != Streams) continue;
            cudaStream_t side = urgent_stream();
            sides_.push_back(side);
        }
        job.barrier();
        for (int k = 0; k < 26; ++k) {
            flags_->exposed[job.rank][k].value = 0;
            flags_->arrived[job.rank][k].value = 0;
        }
        job.barrier();
    }
    ~HostRma() override {
        cudaDeviceSynchronize();
        for (size_t i = 0; i < layout_.messages.size(); ++i) cudaIpcCloseMemHandle(targets_.slots[i]);
        for (auto side : sides_) cudaStreamDestroy(side);
        job_.barrier();  // nobody has it mapped any more
        cudaFree(out_);
        cudaFree(in_);
    }
    double* source() override { return out_; }
    double* slots(int) override { return in_; }

    void enqueue(cudaStream_t stream, int) override {
        ++epoch_;
        // Packed; and the last unpack is over, so that the buffer can be exposed.
        CUDA(cudaStreamSynchronize(stream));
        for (const auto& m : layout_.messages) set(flags_->exposed[m.rank][m.there]);
        for (size_t i = 0; i < layout_.messages.size(); ++i) {
            const auto& m = layout_.messages[i];
            wait(flags_->exposed[job_.rank][m.direction]);
            if (how_ == Kernel) continue;
            CUDA(cudaMemcpyAsync(targets_.slots[i] + m.begin_there, out_ + m.begin, m.bytes(), cudaMemcpyDeviceToDevice,
                                 how_ == Streams ? sides_[i] : stream));
        }
        if (how_ == Kernel) {
            copy_all<<<pieces_.blocks, threads_, 0, stream>>>(out_, targets_);
            CUDA(cudaGetLastError());
        }
        if (how_ != Streams) CUDA(cudaStreamSynchronize(stream));
        for (size_t i = 0; i < layout_.messages.size(); ++i) {
            const auto& m = layout_.messages[i];
            if (how_ == Streams) CUDA(cudaStreamSynchronize(sides_[i]));
            set(flags_->arrived[m.rank][m.there]);
        }
        for (const auto& m : layout_.messages) wait(flags_->arrived[job_.rank][m.direction]);
    }

  private:
    ForkJob& job_;
    const Layout& layout_;
    How how_;
    Pieces pieces_;
    int threads_;
    Flags* flags_;
    double *out_ = nullptr, *in_ = nullptr;
    Targets targets_{};
    std::vector<cudaStream_t> sides_;
    uint64_t epoch_ = 0;

    void set(Flag& flag) const { flag.value.store(epoch_, std::memory_order_release); }
    void wait(const Flag& flag) const {
        while (flag.value.load(std::memory_order_acquire) < epoch_) _mm_pause();
    }
};

static int peer(ForkJob& job, const Options& options) {
    Report report("host-rma", options, job);
    if (options.mode == "pair") throw std::runtime_error("this peer has no pair mode");
    const int own = device_of(job);
    CUDA(cudaSetDevice(own));
    cudaDeviceProp device{};
    CUDA(cudaGetDeviceProperties(&device, own));
    cudaStream_t stream = urgent_stream();
    const Layout layout(options.problem, job.rank, static_cast<unsigned>(device.multiProcessorCount));
    const auto rows = [&](const std::string& name, HostRma::How how) {
        const int limit = options.blocks ? options.blocks : 16;
        run_rows(job, options, layout, stream, report, name,
                 [&] { return std::make_unique<HostRma>(job, layout, how, limit, options.threads_or(512)); });
    };
    rows("copies on one stream", HostRma::OneStream);
    rows("copies on streams of their own", HostRma::Streams);
    rows("one copy kernel", HostRma::Kernel);
    CUDA(cudaDeviceSynchronize());
    job.barrier();
    return report.exit_code();
}

int main(int argc, char** argv) {
    try {
        const Options options = Options::parse(argc, argv);
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
        return ForkJob::run(options.ranks, options.limit_s, [&](ForkJob& job) { return peer(job, options); });
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
        return 2;
    }
}
