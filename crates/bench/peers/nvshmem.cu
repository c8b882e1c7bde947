// NVSHMEM: operations on the stream, and kernels that communicate themselves (nvshmem_device.cuh).
#include "nvshmem_device.cuh"

#include "nvshmem_pair.cuh"
#include "nvshmem_reduce.cuh"
#include "nvshmem_scopes.cuh"

// Host-issued operations on the stream.
//
// Signal words are set, not added to, so that the library may use stream memory operations; and because a graph repeats its
// arguments, the values come round: with period 4, the words of the two buffers become 1, 1, 2, 2, 1, … A sender is never
// more than one exchange ahead of a receiver, so a value is seen before it is replaced.
class OnStream final : public Exchange {
  public:
    enum Kind { Barrier, Signals, SignalsTogether, SignalsInRow, SignalsNbi, Exposed };

    OnStream(const Layout& layout, Kind kind)
        : layout_(layout), kind_(kind), out_(layout.packed_bytes()), in_(2 * layout.packed_bytes()),
          words_(3 * 26 * sizeof(uint64_t)) {
        period = kind == Barrier || kind == Exposed ? 2 : 4;
        const int peers = static_cast<int>(layout.messages.size());
        launches = kind == Barrier ? peers + 1 : kind == Exposed ? 5 * peers : kind == Signals ? 3 * peers : 2 * peers + 1;
        note = kind == Exposed ? "one buffer" : "two buffers in turn";
        // Pack follows unpack; the library's last operation need not be a kernel.
        early = true;
        behind_kernel = kind != Exposed;
        ends_in_kernel = false;
        if (kind == SignalsTogether || kind == SignalsInRow || kind == SignalsNbi) {
            // The ranks that the wait leaves out.
            std::vector<int> absent(26, 1);
            for (const auto& m : layout.messages) absent[m.direction] = 0;
            CUDA(cudaMalloc(&absent_, 26 * sizeof(int)));
            CUDA(cudaMemcpy(absent_, absent.data(), 26 * sizeof(int), cudaMemcpyHostToDevice));
        }
        if (kind == SignalsTogether) {
            for (size_t i = 0; i < layout.messages.size(); ++i) {
                cudaStream_t side = urgent_stream();
                cudaEvent_t done = nullptr;
                CUDA(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
                sides_.push_back(side);
                done_.push_back(done);
            }
            CUDA(cudaEventCreateWithFlags(&packed_, cudaEventDisableTiming));
        }
    }
    ~OnStream() override {
        cudaDeviceSynchronize();
        for (auto side : sides_) cudaStreamDestroy(side);
        for (auto done : done_) cudaEventDestroy(done);
        if (packed_) cudaEventDestroy(packed_);
        cudaFree(absent_);
    }

    double* source() override { return out_.values(); }
    double* slots(int k) override { return in_.values() + (kind_ == Exposed ? 0 : k % 2) * layout_.packed(); }

    void before(cudaStream_t stream, int k) override {
        if (kind_ != Exposed) return;
        for (const auto& m : layout_.messages) {
            nvshmemx_signal_op_on_stream(exposed() + m.there, value(k), NVSHMEM_SIGNAL_SET, m.rank, stream);
        }
    }

    void enqueue(cudaStream_t stream, int k) override {
        double* to = slots(k);
        switch (kind_) {
            case Barrier:
                for (const auto& m : layout_.messages) {
                    nvshmemx_putmem_nbi_on_stream(to + m.begin_there, source() + m.begin, m.bytes(), m.rank, stream);
                }
                nvshmemx_barrier_all_on_stream(stream);
                break;
            case Signals:
            case Exposed:
                for (const auto& m : layout_.messages) {
                    if (kind_ == Exposed) {
                        nvshmemx_signal_wait_until_on_stream(exposed() + m.direction, NVSHMEM_CMP_EQ, value(k), stream);
                    }
                    put(m, to, k, stream);
                }
                for (const auto& m : layout_.messages) {
                    nvshmemx_signal_wait_until_on_stream(arrived(k) + m.direction, NVSHMEM_CMP_EQ, value(k), stream);
                }
                break;
            case SignalsTogether:
                // Puts side by side; then one kernel waits for all of them.
                CUDA(cudaEventRecord(packed_, stream));
                for (size_t i = 0; i < layout_.messages.size(); ++i) {
                    CUDA(cudaStreamWaitEvent(sides_[i], packed_, 0));
                    put(layout_.messages[i], to, k, sides_[i]);
                    CUDA(cudaEventRecord(done_[i], sides_[i]));
                }
                for (auto done : done_) CUDA(cudaStreamWaitEvent(stream, done, 0));
                wait_for_all(k, stream);
                break;
            case SignalsInRow:
                for (const auto& m : layout_.messages) put(m, to, k, stream);
                wait_for_all(k, stream);
                break;
            case SignalsNbi:
                for (const auto& m : layout_.messages) {
                    nvshmemx_putmem_signal_nbi_on_stream(to + m.begin_there, source() + m.begin, m.bytes(),
                                                         arrived(k) + m.there, value(k), NVSHMEM_SIGNAL_SET, m.rank, stream);
                }
                wait_for_all(k, stream);
                // The source is packed anew behind this.
                nvshmemx_quiet_on_stream(stream);
                break;
        }
        CUDA(cudaGetLastError());
    }

  private:
    const Layout& layout_;
    Kind kind_;
    Symmetric out_, in_, words_;
    int* absent_ = nullptr;
    std::vector<cudaStream_t> sides_;
    std::vector<cudaEvent_t> done_;
    cudaEvent_t packed_ = nullptr;

    uint64_t* exposed() const { return words_.words() + 2 * 26; }
    uint64_t* arrived(int k) const { return words_.words() + (kind_ == Exposed ? 0 : k % 2) * 26; }
    uint64_t value(int k) const { return 1 + (kind_ == Exposed ? k % 2 : k / 2 % 2); }
    void wait_for_all(int k, cudaStream_t stream) {
        nvshmemx_uint64_wait_until_all_on_stream(arrived(k), 26, absent_, NVSHMEM_CMP_EQ, value(k), stream);
    }
    void put(const Message& m, double* to, int k, cudaStream_t stream) {
        nvshmemx_putmem_signal_on_stream(to + m.begin_there, source() + m.begin, m.bytes(), arrived(k) + m.there, value(k),
                                         NVSHMEM_SIGNAL_SET, m.rank, stream);
    }
};

static void exchange_rows(Job& job, const Options& options, cudaStream_t stream, Report& report, unsigned sms) {
    const Layout layout(options.problem, job.rank, sms);
    const auto rows = [&](const std::string& name, const std::function<std::unique_ptr<Exchange>()>& make) {
        run_rows(job, options, layout, stream, report, name, make);
    };
    const auto on_stream = [&](const char* name, OnStream::Kind kind) {
        rows(name, [&] { return std::make_unique<OnStream>(layout, kind); });
    };
    on_stream("on-stream: put_nbi each, barrier_all", OnStream::Barrier);
    on_stream("on-stream: put_signal, wait each", OnStream::Signals);
    on_stream("on-stream: put_signal on streams of their own, wait_until_all", OnStream::SignalsTogether);
    on_stream("on-stream: put_signal in a row, wait_until_all", OnStream::SignalsInRow);
    on_stream("on-stream: put_signal_nbi each, wait_until_all and quiet", OnStream::SignalsNbi);
    on_stream("on-stream: exposure, put_signal, wait each", OnStream::Exposed);

    std::vector<std::pair<const char*, Sends>> ways = {{"put_signal_nbi_block", Sends::Puts}, {"nvshmem_ptr stores", Sends::Stores}};
    if (options.mode == "share") ways.emplace_back("nvshmem_ptr stores, gathers", Sends::Gathers);
    for (const auto& [name, how] : ways) {
        for (bool exposed : {true, false}) {
            for (const auto& shape : options.shapes()) {
                const auto row = std::string("device: ") + name + (exposed ? ", exposure, " : ", no exposure, ") + shape.name();
                rows(row, [&, how = how] { return std::make_unique<Fused>(layout, how, exposed, shape, sms); });
            }
        }
    }
}

static int peer(Job& job, const Options& options) {
    Report report("nvshmem", options, job);
    const int own = device_of(job);
    CUDA(cudaSetDevice(own));
    cudaDeviceProp device{};
    CUDA(cudaGetDeviceProperties(&device, own));
    CUDA(cudaFree(nullptr));

    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
    if (job.rank == 0 && nvshmemx_get_uniqueid(&id) != 0) throw std::runtime_error("nvshmemx_get_uniqueid failed");
    id = job.from_first(id);
    if (nvshmemx_set_attr_uniqueid_args(job.rank, job.size, &id, &attributes) != 0 ||
        nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes) != 0) {
        throw std::runtime_error("NVSHMEM could not be initialised");
    }
    if (nvshmem_my_pe() != job.rank || nvshmem_n_pes() != job.size) throw std::runtime_error("NVSHMEM counts ranks otherwise");

    cudaStream_t stream = urgent_stream();
    if (options.mode == "pair") {
        if (job.size != 2) throw std::runtime_error("--mode pair needs two ranks");
        pair_rows(job, options, stream, report);
    } else if (options.mode == "device") {
        if (job.size != 2) throw std::runtime_error("--mode device needs two ranks");
        scope_rows(job, options, stream, report);
    } else if (options.mode == "reduce") {
        reduce_rows(job, options, stream, report);
    } else {
        exchange_rows(job, options, stream, report, static_cast<unsigned>(device.multiProcessorCount));
    }
    CUDA(cudaDeviceSynchronize());
    job.barrier();
    nvshmem_finalize();
    return report.exit_code();
}

int main(int argc, char** argv) {
    try {
        const Options options = Options::parse(argc, argv);
        // No multicast: it is not measured here, and not every fabric has it.
        setenv("NVSHMEM_DISABLE_NVLS", "1", 1);
        setenv("NCCL_NVLS_ENABLE", "0", 1);
        setenv("NVSHMEM_DISABLE_NCCL", "1", 0);
        // One host: no network transport needs to be looked for.
        setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 0);
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
        // A kernel that is loaded when it is first used waits for kernels that wait for it.
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
        return ForkJob::run(options.ranks, options.limit_s, [&](ForkJob& job) { return peer(job, options); });
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
        return 2;
    }
}
