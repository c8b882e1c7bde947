// No library at all: the cost of a launch, a flag and a byte on this machine. Two processes, two GPUs, memory mapped by CUDA IPC.
#include "harness.cuh"

static __global__ void empty() {}

// Both GPUs run it: rank 0 begins. Each turn is one flag there and one back.
static __global__ void flag_ping(uint64_t* mine, uint64_t* theirs, int me, uint64_t done, int turns) {
    for (uint64_t turn = done + 1; turn <= done + turns; ++turn) {
        if (me == 0) release_store(theirs, turn);
        acquire_at_least(mine, turn);
        if (me == 1) release_store(theirs, turn);
    }
}

// One kernel an epoch: says so to the other, and waits for the same.
static __global__ void signal_wait(uint64_t* mine, uint64_t* theirs, uint64_t* epochs) {
    const uint64_t epoch = *epochs + 1;
    release_store(theirs, epoch);
    acquire_at_least(mine, epoch);
    *epochs = epoch;
}

static __global__ void __launch_bounds__(1024) store_blocks(char* to, const char* from, size_t bytes) {
    const size_t each = ((bytes + gridDim.x - 1) / gridDim.x + 127) / 128 * 128, start = blockIdx.x * each;
    if (start < bytes) block_copy(to + start, from + start, min(each, bytes - start));
}

// Memory of this process, and where the other one's is mapped.
struct Shared {
    char* mine = nullptr;
    char* theirs = nullptr;
    Shared(Job& job, size_t bytes) {
        CUDA(cudaMalloc(&mine, bytes));
        CUDA(cudaMemset(mine, 0, bytes));
        cudaIpcMemHandle_t handle;
        CUDA(cudaIpcGetMemHandle(&handle, mine));
        const auto handles = job.gathered(handle);
        void* mapped = nullptr;
        CUDA(cudaIpcOpenMemHandle(&mapped, handles[1 - job.rank], cudaIpcMemLazyEnablePeerAccess));
        theirs = static_cast<char*>(mapped);
        CUDA(cudaDeviceSynchronize());
        job.barrier();
    }
};

class Floor {
  public:
    Floor(Job& job, const Options& options, Report& report) : job_(job), options_(options), report_(report) {
        CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    }

    void launches() {
        Timed timed;
        timed.units = 500;
        nothing(timed);
        timed.unit = [&] { empty<<<1, 32, 0, stream_>>>(); };
        add("empty kernel, launch after launch", timed);
        timed.unit = [&] {
            empty<<<1, 32, 0, stream_>>>();
            CUDA(cudaStreamSynchronize(stream_));
        };
        add("empty kernel, launch and synchronise", timed);
        for (int kernels : {1, 2, 20}) {
            Graph graph(stream_, [&] {
                for (int i = 0; i < kernels; ++i) empty<<<1, 32, 0, stream_>>>();
            });
            timed.unit = [&] { graph.launch(stream_); };
            timed.per_unit = kernels;
            add("empty kernel, in a graph of " + std::to_string(kernels), timed);
            if (kernels == 1) {
                timed.unit = [&] {
                    graph.launch(stream_);
                    CUDA(cudaStreamSynchronize(stream_));
                };
                add("empty kernel, in a graph of 1, launch and synchronise", timed);
            }
        }
    }

    void flags() {
        Shared words(job_, 4096);
        auto* mine = reinterpret_cast<uint64_t*>(words.mine);
        auto* theirs = reinterpret_cast<uint64_t*>(words.theirs);
        uint64_t done = 0;
        Timed timed;
        nothing(timed);
        timed.per_unit = 1000;
        timed.unit = [&] {
            flag_ping<<<1, 1, 0, stream_>>>(mine, theirs, job_.rank, done, 1000);
            done += 1000;
        };
        add("flag in a kernel, one way", timed, 0, 2);

        uint64_t* epochs = nullptr;
        CUDA(cudaMalloc(&epochs, 8));
        CUDA(cudaMemset(epochs, 0, 8));
        timed.per_unit = 1;
        timed.units = 500;
        timed.unit = [&] { signal_wait<<<1, 1, 0, stream_>>>(mine + 128, theirs + 128, epochs); };
        add("signal and wait, one kernel", timed);
        for (int kernels : {1, 20}) {
            Graph graph(stream_, [&] {
                for (int i = 0; i < kernels; ++i) signal_wait<<<1, 1, 0, stream_>>>(mine + 128, theirs + 128, epochs);
            });
            timed.per_unit = kernels;
            timed.unit = [&] { graph.launch(stream_); };
            add("signal and wait, one kernel, in a graph of " + std::to_string(kernels), timed);
        }
        CUDA(cudaFree(epochs));
    }

    void copies() {
        const size_t most = 256 << 20;
        Shared target(job_, most);
        uint64_t* source = nullptr;
        unsigned long long* wrong = nullptr;
        CUDA(cudaMalloc(&source, most));
        CUDA(cudaMalloc(&wrong, 8));
        CUDA(cudaMemset(wrong, 0, 8));
        std::vector<cudaStream_t> sides(4);
        for (auto& side : sides) CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
        unsigned long long seed = 0, bad = 0;
        for (size_t bytes = 1024; bytes <= most; bytes *= 4) {
            Timed timed;
            timed.units = bytes <= (1 << 20) ? 200 : 10;
            timed.prepare = [&] {
                ++seed;
                write_words<<<132, 512, 0, stream_>>>(source, bytes / 8, seed);
                CUDA(cudaMemsetAsync(target.mine, 0, bytes, stream_));
            };
            timed.check = [&] {
                if (job_.rank == 1) {
                    check_words<<<132, 512, 0, stream_>>>(reinterpret_cast<uint64_t*>(target.mine), bytes / 8, seed, wrong);
                }
                CUDA(cudaMemcpyAsync(&bad, wrong, 8, cudaMemcpyDeviceToHost, stream_));
                CUDA(cudaStreamSynchronize(stream_));
                return bad == 0;
            };
            timed.unit = [&] {
                if (job_.rank == 0) {
                    CUDA(cudaMemcpyAsync(target.theirs, source, bytes, cudaMemcpyDeviceToDevice, stream_));
                }
            };
            add("copy engine, one after the other", timed, bytes);
            size_t next = 0;
            timed.unit = [&] {
                if (job_.rank == 0) {
                    cudaStream_t side = sides[next++ % sides.size()];
                    CUDA(cudaMemcpyAsync(target.theirs, source, bytes, cudaMemcpyDeviceToDevice, side));
                }
            };
            add("copy engine, on four streams", timed, bytes);
            for (int blocks : {1, 16, 64, 128}) {
                if (static_cast<size_t>(blocks) * 1024 > bytes || (blocks < 16 && bytes > (1 << 20))) continue;
                timed.unit = [&] {
                    if (job_.rank == 0) {
                        store_blocks<<<blocks, options_.threads_or(512), 0, stream_>>>(
                            target.theirs, reinterpret_cast<const char*>(source), bytes);
                    }
                };
                add("stores of 16 bytes, " + std::to_string(blocks) + " blocks", timed, bytes);
            }
        }
        for (auto side : sides) CUDA(cudaStreamDestroy(side));
        CUDA(cudaFree(source));
        CUDA(cudaFree(wrong));
    }

  private:
    Job& job_;
    const Options& options_;
    Report& report_;
    cudaStream_t stream_ = nullptr;

    static void nothing(Timed& timed) {
        timed.prepare = [] {};
        timed.check = [] { return true; };
    }
    void add(const std::string& name, const Timed& timed, size_t bytes = 0, int ways = 1) {
        if (!options_.wants(name)) return;
        Row row = time_rounds(job_, options_, stream_, timed);
        CUDA(cudaGetLastError());
        row.row = name;
        for (double* t : {&row.us, &row.least, &row.most}) *t /= ways;
        if (bytes) row.more = {{"bytes", static_cast<double>(bytes)}, {"gbps", static_cast<double>(bytes) / row.us * 1e-3}};
        report_.add(row);
    }
};

int main(int argc, char** argv) {
    try {
        Options options = Options::parse(argc, argv);
        options.mode = "floor";
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
        return ForkJob::run(2, options.limit_s, [&](ForkJob& job) {
            CUDA(cudaSetDevice(device_of(job)));
            Report report("floor", options, job);
            Floor floor(job, options, report);
            floor.launches();
            floor.flags();
            floor.copies();
            return report.exit_code();
        });
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
        return 2;
    }
}
