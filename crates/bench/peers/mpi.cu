// MPI: the host waits for the stream, exchanges, and waits again before it enqueues more.
//
// Started by mpirun, on one host: a rank is its number on the host, too. If the library takes device pointers (it says so itself; a library that does not
// would crash on them), messages go from GPU memory to GPU memory; else over pinned host memory.
#include "share.cuh"

#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

static void mpi_check(int code, const char* what, int line) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    const std::string name(what, std::strcspn(what, "("));
    throw std::runtime_error("mpi.cu:" + std::to_string(line) + ": " + name + ": " + text);
}
#define MPI(call) mpi_check((call), #call, __LINE__)

class MpiJob final : public Job {
  public:
    MpiJob() {
        MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
        MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
    }
    void barrier() override { MPI(MPI_Barrier(MPI_COMM_WORLD)); }
    void all_gather(const void* mine, size_t bytes, void* all) override {
        MPI(MPI_Allgather(mine, static_cast<int>(bytes), MPI_BYTE, all, static_cast<int>(bytes), MPI_BYTE, MPI_COMM_WORLD));
    }
};

static bool takes_device_pointers() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    return MPIX_Query_cuda_support() == 1;
#else
    return false;
#endif
}

// Memory that both sides can name: on the device, and pinned on the host where messages are staged.
class Buffer {
  public:
    Buffer(size_t bytes, bool staged) {
        CUDA(cudaMalloc(&device_, bytes));
        CUDA(cudaMemset(device_, 0, bytes));
        if (staged) {
            CUDA(cudaMallocHost(&host_, bytes));
            std::memset(host_, 0, bytes);
        }
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() {
        cudaFree(device_);
        if (host_) cudaFreeHost(host_);
    }
    double* device() const { return device_; }
    double* host() const { return host_; }
    // The buffers that MPI gets.
    double* mpi() const { return host_ ? host_ : device_; }

  private:
    double* device_ = nullptr;
    double* host_ = nullptr;
};

// The copies to and from the host, for sendrecv and one-sided exchanges.
class Staging : public Exchange {
  public:
    Staging(const Layout& layout, bool staged)
        : layout_(layout), staged_(staged), out_(layout.packed_bytes(), staged), in_(layout.packed_bytes(), staged) {
        graphs = false;
        note = staged ? "over pinned host memory" : "device pointers";
    }
    double* source() override { return out_.device(); }
    double* slots(int) override { return in_.device(); }

  protected:
    // The source is packed and can be sent.
    void ready(cudaStream_t stream) {
        if (staged_) {
            for (const auto& m : layout_.messages) {
                CUDA(cudaMemcpyAsync(out_.host() + m.begin, out_.device() + m.begin, m.bytes(), cudaMemcpyDeviceToHost,
                                     stream));
            }
        }
        CUDA(cudaStreamSynchronize(stream));
    }
    // One message has arrived.
    void arrived(cudaStream_t stream, const Message& m) {
        if (!staged_) return;
        CUDA(cudaMemcpyAsync(in_.device() + m.begin, in_.host() + m.begin, m.bytes(), cudaMemcpyHostToDevice, stream));
    }
    const Layout& layout_;
    bool staged_;
    Buffer out_, in_;
};

class SendReceive final : public Staging {
  public:
    SendReceive(const Layout& layout, bool staged) : Staging(layout, staged), requests_(2 * layout.messages.size()) {}

    void enqueue(cudaStream_t stream, int) override {
        // The last copies out of the receive buffer must be over before anything is received again; `ready` waits for them
        // as well, so receives are posted behind it.
        ready(stream);
        const int count = static_cast<int>(layout_.messages.size());
        for (int i = 0; i < count; ++i) {
            const auto& m = layout_.messages[i];
            MPI(MPI_Irecv(in_.mpi() + m.begin, static_cast<int>(m.values), MPI_DOUBLE, m.rank, m.direction, MPI_COMM_WORLD,
                          &requests_[i]));
        }
        for (int i = 0; i < count; ++i) {
            const auto& m = layout_.messages[i];
            MPI(MPI_Isend(out_.mpi() + m.begin, static_cast<int>(m.values), MPI_DOUBLE, m.rank, m.there, MPI_COMM_WORLD,
                          &requests_[count + i]));
        }
        for (int done = 0; done < count; ++done) {
            int i = 0;
            MPI(MPI_Waitany(count, requests_.data(), &i, MPI_STATUS_IGNORE));
            arrived(stream, layout_.messages[i]);
        }
        MPI(MPI_Waitall(count, requests_.data() + count, MPI_STATUSES_IGNORE));
    }

  private:
    std::vector<MPI_Request> requests_;
};

// Active target synchronisation: post, start, puts, complete, wait.
class Active final : public Staging {
  public:
    Active(const Layout& layout, bool staged) : Staging(layout, staged) {
        MPI(MPI_Win_create(in_.mpi(), static_cast<MPI_Aint>(layout.packed_bytes()), sizeof(double), MPI_INFO_NULL,
                           MPI_COMM_WORLD, &window_));
        MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
        std::vector<int> ranks;
        for (const auto& m : layout.messages) ranks.push_back(m.rank);
        MPI_Group world;
        MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
        MPI(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &neighbours_));
        MPI(MPI_Group_free(&world));
    }
    ~Active() override {
        MPI_Win_free(&window_);
        MPI_Group_free(&neighbours_);
    }
    void enqueue(cudaStream_t stream, int) override {
        ready(stream);
        MPI(MPI_Win_post(neighbours_, MPI_MODE_NOSTORE, window_));
        MPI(MPI_Win_start(neighbours_, 0, window_));
        for (const auto& m : layout_.messages) {
            const int count = static_cast<int>(m.values);
            MPI(MPI_Put(out_.mpi() + m.begin, count, MPI_DOUBLE, m.rank, static_cast<MPI_Aint>(m.begin_there), count,
                        MPI_DOUBLE, window_));
        }
        MPI(MPI_Win_complete(window_));
        MPI(MPI_Win_wait(window_));
        for (const auto& m : layout_.messages) arrived(stream, m);
    }

  private:
    MPI_Win window_ = MPI_WIN_NULL;
    MPI_Group neighbours_ = MPI_GROUP_NULL;
};

// Does a step that may fail on any rank; all ranks learn of the first error, or get an empty text.
static std::string failure(MpiJob& job, const std::function<void()>& step) {
    struct Text {
        char of[256];
    } mine{};
    try {
        step();
    } catch (const std::exception& error) {
        std::snprintf(mine.of, sizeof mine.of, "rank %d: %s", job.rank, error.what());
    }
    for (const Text& text : job.gathered(mine)) {
        if (text.of[0]) return text.of;
    }
    return {};
}

static int peer(const Options& options) {
    MpiJob job;
    Report report("mpi", options, job);
    if (options.mode == "pair") throw std::runtime_error("the MPI peer has no pair mode");
    if (job.size != options.ranks) throw std::runtime_error("mpirun -n must be the number of ranks of the grid");
    const int own = device_of(job);
    CUDA(cudaSetDevice(own));
    cudaDeviceProp device{};
    CUDA(cudaGetDeviceProperties(&device, own));
    cudaStream_t stream = urgent_stream();
    const Layout layout(options.problem, job.rank, static_cast<unsigned>(device.multiProcessorCount));
    const auto rows = [&](const std::string& name, const std::function<std::unique_ptr<Exchange>()>& make) {
        const std::string row = name + options.tag;
        if (!options.wants(row)) return;
        // A form that the library cannot do fails at the first exchange, and loses that row alone.
        std::unique_ptr<Exchange> x;
        std::string why = failure(job, [&] { x = make(); });
        if (why.empty()) {
            why = failure(job, [&] {
                x->enqueue(stream, 0);
                CUDA(cudaStreamSynchronize(stream));
            });
        }
        if (!why.empty()) {
            static_cast<void>(x.release());  // MPI may still use the buffers, and a broken window cannot be freed
            report.fail(row, "not run: " + why);
            return;
        }
        run_rows(job, options, layout, stream, report, name, [&] { return std::move(x); });
    };
    const bool aware = takes_device_pointers();
    if (job.rank == 0 && !aware) std::fprintf(stderr, "this MPI does not take device pointers: messages are staged\n");
    if (aware) rows("isend/irecv, device pointers", [&] { return std::make_unique<SendReceive>(layout, false); });
    rows("isend/irecv, staged", [&] { return std::make_unique<SendReceive>(layout, true); });
    rows("active RMA, staged", [&] { return std::make_unique<Active>(layout, true); });
    // Last: libraries take device pointers in messages sooner than in windows, and a hang here costs no other row.
    if (aware) rows("active RMA, device pointers", [&] { return std::make_unique<Active>(layout, false); });
    CUDA(cudaDeviceSynchronize());
    job.barrier();
    return report.exit_code();
}

// A library looks at the process's GPU when it starts, so it is chosen before, from the launcher's variables.
static void choose_device() {
    for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_RANK"}) {
        const char* rank = std::getenv(name);
        if (rank == nullptr) continue;
        // An error shows again where the device is used.
        int devices = 0;
        if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 && cudaSetDevice(std::atoi(rank) % devices) == cudaSuccess) cudaFree(nullptr);
        return;
    }
}

int main(int argc, char** argv) {
    choose_device();
    MPI_Init(&argc, &argv);
    int code = 2;
    try {
        MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
        code = peer(Options::parse(argc, argv));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
        std::fflush(nullptr);
        MPI_Abort(MPI_COMM_WORLD, code);
    }
    MPI_Finalize();
    return code;
}
