// Options, the clock, and the rows that come out.
//
// A peer describes each of its ways to exchange as an Exchange; `measure` then does the same with all of them: proves on
// changing data, with ranks made late on purpose, that every value arrives; times; and proves it again on what the timed run
// received. Several rounds, each the time of the slowest rank; the median of the rounds is what counts.
#pragma once

#include <cmath>
#include <functional>
#include <memory>

#include <getopt.h>
#include <sys/resource.h>

#include "common.cuh"
#include "job.hpp"

// Whether ranks share GPUs. Then no kernel is launched early behind one that waits for another rank: it would hold the room that
// the other one needs.
inline bool shared_gpus = false;

// The GPU of a rank. If there are fewer GPUs than ranks, ranks share them by turns, for which MPS must run: without it kernels
// that wait for each other get slices of time.
inline int device_of(const Job& job) {
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    if (devices < 1) throw std::runtime_error("there is no GPU");
    if (job.rank == 0 && job.size > devices) std::fprintf(stderr, "%d ranks share %d GPUs: that needs MPS\n", job.size, devices);
    shared_gpus = job.size > devices;
    return job.rank % devices;
}

struct Options {
    std::string mode = "exchange";
    std::string only;     // rows whose name contains this
    std::string without;  // and not this
    Problem problem;
    int ranks = 0;         // 0: as the grid says
    int iterations = 200;  // exchanges of a round
    int rounds = 11;
    int shares = 100;  // of a run, as in the published sizes
    bool compute = false;
    int blocks = 0;   // pieces of a face at most; 0: the peer tries a few
    int threads = 0;  // of a block; 0: as above
    std::string tag;  // added to the names of all rows
    std::vector<int> unroll = {1, 20};  // exchanges of a graph
    int limit_s = 55;

    bool wants(const std::string& row) const {
        return row.find(only) != std::string::npos && (without.empty() || row.find(without) == std::string::npos);
    }

    int threads_or(int other) const { return threads ? threads : other; }

    // Launch shapes to try.
    struct Shape {
        int blocks, threads;
        bool early;
        std::string name() const {
            return std::to_string(blocks) + " blocks of " + std::to_string(threads) + (early ? ", early" : "");
        }
    };
    std::vector<Shape> shapes() const {
        std::vector<Shape> all;
        for (int b : blocks ? std::vector<int>{blocks} : std::vector<int>{8, 16, 32}) {
            for (int t : threads ? std::vector<int>{threads} : std::vector<int>{512, 1024}) {
                all.push_back({b, t, true});
                // Early has been the better one everywhere; late is there so that this is seen.
                if (threads || (b < 32 && t == 512)) all.push_back({b, t, false});
            }
        }
        return all;
    }

    static Options parse(int argc, char** argv) {
        Options o;
        const option names[] = {{"mode", 1, nullptr, 'M'},    {"grid", 1, nullptr, 'g'},   {"m", 1, nullptr, 'm'},
                                {"n", 1, nullptr, 'n'},       {"ni", 1, nullptr, 'i'},     {"rounds", 1, nullptr, 'r'},
                                {"shares", 1, nullptr, 's'},  {"compute", 0, nullptr, 'c'}, {"blocks", 1, nullptr, 'b'},
                                {"threads", 1, nullptr, 't'}, {"unroll", 1, nullptr, 'u'}, {"only", 1, nullptr, 'o'},
                                {"without", 1, nullptr, 'w'}, {"limit", 1, nullptr, 'l'},  {"ranks", 1, nullptr, 'R'},
                                {"tag", 1, nullptr, 'T'},     {nullptr, 0, nullptr, 0}};
        for (int c; (c = getopt_long(argc, argv, "", names, nullptr)) != -1;) {
            switch (c) {
                case 'M': o.mode = optarg; break;
                case 'g': {
                    const auto v = list(optarg, 3);
                    for (int d = 0; d < 3; ++d) o.problem.grid[d] = v[d];
                    break;
                }
                case 'm': {
                    const auto v = list(optarg, 3);
                    for (int d = 0; d < 3; ++d) o.problem.m[d] = static_cast<unsigned>(v[d]);
                    break;
                }
                case 'n': o.problem.n = static_cast<unsigned>(list(optarg, 1)[0]); break;
                case 'i': o.iterations = list(optarg, 1)[0]; break;
                case 'r': o.rounds = list(optarg, 1)[0]; break;
                case 's': o.shares = list(optarg, 1)[0]; break;
                case 'c': o.compute = true; break;
                case 'b': o.blocks = list(optarg, 1)[0]; break;
                case 't': o.threads = list(optarg, 1)[0]; break;
                case 'u': o.unroll = list(optarg, 0); break;
                case 'o': o.only = optarg; break;
                case 'w': o.without = optarg; break;
                case 'l': o.limit_s = list(optarg, 1)[0]; break;
                case 'T': o.tag = std::string(", ") + optarg; break;
                case 'R': o.ranks = list(optarg, 1)[0]; break;
                default: throw std::runtime_error("see README.md for the options");
            }
        }
        if (o.threads % 32 != 0 || o.threads > 1024) throw std::runtime_error("--threads: whole warps, at most 1024");
        if (o.ranks == 0) o.ranks = o.mode == "pair" || o.mode == "floor" || o.mode == "device" ? 2 : o.problem.ranks();
        if (o.mode != "exchange" && o.mode != "share" && o.mode != "pair" && o.mode != "reduce" && o.mode != "floor" &&
            o.mode != "device") {
            throw std::runtime_error("--mode is exchange, share, pair, device or reduce");
        }
        return o;
    }

  private:
    static std::vector<int> list(const char* text, size_t count) {
        std::vector<int> values;
        for (const char* at = text;;) {
            char* end = nullptr;
            const long value = std::strtol(at, &end, 10);
            if (end == at || value < 1 || value > 1'000'000) throw std::runtime_error(std::string("not a count: ") + text);
            values.push_back(static_cast<int>(value));
            if (*end == 0) break;
            if (*end != ',') throw std::runtime_error(std::string("not a list: ") + text);
            at = end + 1;
        }
        if (count != 0 && values.size() != count) throw std::runtime_error(std::string("wrong length: ") + text);
        return values;
    }
};

// One way to exchange the messages of a Layout.
class Exchange {
  public:
    std::string row;     // its name
    std::string note;    // what to know of the figure
    int period = 1;      // exchange k and exchange k + period use the same buffers and arguments
    bool graphs = true;  // whether it can be captured
    int launches = 0;    // kernels and other device operations of an exchange, where known
    bool early = false;  // whether kernels behind a kernel are launched early (common.cuh)
    bool behind_kernel = true;   // what it enqueues before the pack kernel, if anything, is a kernel
    bool ends_in_kernel = true;  // and what it enqueues last
    bool gathers = false;        // it takes its messages out of the block: nothing is packed

    virtual ~Exchange() = default;
    // The block that messages are gathered from.
    virtual void from(const double*) {}
    // Where this rank's messages are packed.
    virtual double* source() = 0;
    // Where exchange k receives: all slots, zero for slots without a sender.
    virtual double* slots(int k) = 0;
    // Signals to the others that can go before the source is ready.
    virtual void before(cudaStream_t, int) {}
    // Exchange k: when this rank's stream gets past it, all slots are filled and the source may be written again.
    virtual void enqueue(cudaStream_t stream, int k) = 0;
};

struct Row {
    std::string peer, row, mode, note;
    std::string scope;  // the threads that do it together, if that is what is measured
    int ranks = 0;
    double us = NAN, least = NAN, most = NAN;
    double enqueue_us = NAN, cpu_us = NAN;
    int launches = 0;
    bool verified = false;
    std::vector<std::pair<std::string, double>> more;
};

inline double median(std::vector<double> values) {
    if (values.empty()) return NAN;
    std::sort(values.begin(), values.end());
    const size_t half = values.size() / 2;
    return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

inline double now_us() {
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

// User and system time of all threads of this process.
inline double cpu_us() {
    rusage u{};
    getrusage(RUSAGE_SELF, &u);
    return 1e6 * static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

class Report {
  public:
    Report(std::string peer, const Options& options, Job& job) : peer_(std::move(peer)), options_(options), job_(job) {}

    void add(Row row) {
        row.peer = peer_;
        row.mode = options_.mode;
        row.ranks = job_.size;
        failed_ = failed_ || !row.verified;
        if (job_.rank != 0) return;
        std::string line = "{\"peer\":\"" + row.peer + "\",\"row\":\"" + escaped(row.row) + "\",\"mode\":\"" + row.mode + "\"";
        line += ",\"ranks\":" + std::to_string(row.ranks);
        line += ",\"us\":" + number(row.us) + ",\"min\":" + number(row.least) + ",\"max\":" + number(row.most);
        line += std::string(",\"verified\":") + (row.verified ? "true" : "false");
        line += ",\"enqueue_us\":" + number(row.enqueue_us) + ",\"cpu_us\":" + number(row.cpu_us);
        line += ",\"launches\":" + (row.launches > 0 ? std::to_string(row.launches) : "null");
        if (!row.scope.empty()) line += ",\"scope\":\"" + row.scope + "\"";
        for (const auto& [key, value] : row.more) line += ",\"" + key + "\":" + number(value);
        line += ",\"note\":\"" + escaped(row.note) + "\"}";
        std::printf("%s\n", line.c_str());
        std::fflush(stdout);
        std::fprintf(stderr, "%-9s %-64s %10.2f us  [%.2f, %.2f]  enqueue %.2f  cpu %.2f  %s %s\n", row.peer.c_str(),
                     row.row.c_str(), row.us, row.least, row.most, row.enqueue_us, row.cpu_us,
                     row.verified ? "" : "FAILED", row.note.c_str());
    }

    // A row that came to no time.
    void fail(const std::string& row, const std::string& why) {
        Row r;
        r.row = row;
        r.note = why;
        add(r);
    }

    int exit_code() const { return failed_ ? 1 : 0; }

  private:
    std::string peer_;
    const Options& options_;
    Job& job_;
    bool failed_ = false;

    static std::string number(double value) {
        if (!std::isfinite(value)) return "null";
        char text[32];
        // Whole numbers as they are: a size with four digits would be another size.
        const bool whole = value == std::floor(value) && std::fabs(value) < 1e15;
        std::snprintf(text, sizeof text, whole ? "%.0f" : "%.4g", value);
        return text;
    }
    static std::string escaped(const std::string& text) {
        std::string out;
        for (char c : text) {
            if (c == '"' || c == '\\') out += '\\';
            out += c == '\n' ? ' ' : c;
        }
        return out;
    }
};

// A stream whose kernels go before those of ordinary streams: of the compute kernel, that is.
inline cudaStream_t urgent_stream() {
    int least = 0, greatest = 0;
    CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t stream = nullptr;
    CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    return stream;
}

// A captured sequence of work; if there are two streams, each node with the priority of its own.
class Graph {
  public:
    Graph(cudaStream_t stream, const std::function<void()>& work, bool two_streams = false) {
        CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        try {
            work();
        } catch (...) {
            cudaGraph_t broken = nullptr;
            cudaStreamEndCapture(stream, &broken);
            throw;
        }
        cudaGraph_t graph = nullptr;
        CUDA(cudaStreamEndCapture(stream, &graph));
        CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
        CUDA(cudaGraphInstantiate(&exec_, graph, two_streams ? cudaGraphInstantiateFlagUseNodePriority : 0));
        CUDA(cudaGraphDestroy(graph));
        CUDA(cudaGraphUpload(exec_, stream));
        CUDA(cudaStreamSynchronize(stream));
    }
    Graph(const Graph&) = delete;
    ~Graph() { cudaGraphExecDestroy(exec_); }
    void launch(cudaStream_t stream) { CUDA(cudaGraphLaunch(exec_, stream)); }

    size_t nodes = 0;

  private:
    cudaGraphExec_t exec_ = nullptr;
};

// The timed unit: `unit` does `per_unit` exchanges (or shares), and may be called again and again.
struct Timed {
    std::function<void()> prepare;  // before each round; not timed
    std::function<void()> unit;
    int per_unit = 1;
    int units = 1;
    std::function<bool()> check;  // after each round; not timed
};

// Rounds around the clock. The clock starts after a barrier, and stops when the stream is idle.
inline Row time_rounds(Job& job, const Options& options, cudaStream_t stream, const Timed& timed) {
    std::vector<double> times, enqueues;
    Row row;
    bool right = true;
    double cpu = 0;
    for (int round = 0; round < options.rounds + 1; ++round) {
        timed.prepare();
        CUDA(cudaStreamSynchronize(stream));
        job.barrier();
        const double cpu_start = cpu_us(), start = now_us();
        for (int i = 0; i < timed.units; ++i) timed.unit();
        CUDA(cudaDeviceSynchronize());
        const double end = now_us(), cpu_end = cpu_us();
        job.barrier();
        right = timed.check() && right;
        const double count = static_cast<double>(timed.units) * timed.per_unit;
        const double slowest = job.max((end - start) / count);
        if (round == 0) continue;
        times.push_back(slowest);
        cpu += (cpu_end - cpu_start) / count / options.rounds;
    }
    // The cost of enqueueing alone: bursts so short that no queue is ever full.
    const int burst = std::min(timed.units, std::max(1, 20 / timed.per_unit));
    for (int round = 0; round < 9; ++round) {
        timed.prepare();
        CUDA(cudaDeviceSynchronize());
        job.barrier();
        const double start = now_us();
        for (int i = 0; i < burst; ++i) timed.unit();
        const double end = now_us();
        CUDA(cudaDeviceSynchronize());
        enqueues.push_back((end - start) / (static_cast<double>(burst) * timed.per_unit));
    }
    job.barrier();
    row.us = median(times);
    row.least = *std::min_element(times.begin(), times.end());
    row.most = *std::max_element(times.begin(), times.end());
    row.enqueue_us = job.max(median(enqueues));
    row.cpu_us = job.max(cpu);
    row.verified = job.sum(right ? 0 : 1) == 0;
    return row;
}

inline int round_up(int value, int step) { return (value + step - 1) / step * step; }

// Communication only. `in_graph` exchanges a graph; 0: not captured.
inline Row measure_exchange(Job& job, const Options& options, const Layout& layout, cudaStream_t stream, Exchange& x,
                            int in_graph) {
    const auto all = for_device(layout);
    const dim3 grid(32, static_cast<unsigned>(std::max(all.count, 1)));
    unsigned long long* counts = nullptr;
    CUDA(cudaMalloc(&counts, 16));
    CUDA(cudaMemset(counts, 0, 16));
    CUDA(cudaDeviceSynchronize());
    unsigned long long epoch = 1, expected = 0, values = 0;
    for (const auto& message : layout.messages) values += message.values;
    const auto fill = [&] {
        ++epoch;
        if (all.count) fill_source<<<grid, 256, 0, stream>>>(all, job.rank, x.source(), epoch);
        CUDA(cudaGetLastError());
    };
    const auto check = [&](int k) {
        if (all.count) check_slots<<<grid, 256, 0, stream>>>(all, x.slots(k), epoch, counts);
        CUDA(cudaGetLastError());
        expected += values;
    };
    const auto clean = [&] {
        unsigned long long seen[2];
        CUDA(cudaMemcpyAsync(seen, counts, 16, cudaMemcpyDeviceToHost, stream));
        CUDA(cudaStreamSynchronize(stream));
        return seen[0] == 0 && seen[1] == expected;
    };

    int next = 0;
    std::unique_ptr<Graph> graph;
    if (in_graph > 0) {
        graph = std::make_unique<Graph>(stream, [&] {
            for (int k = 0; k < in_graph; ++k) {
                x.before(stream, k % x.period);
                x.enqueue(stream, k % x.period);
            }
        });
        job.barrier();
    }
    Timed timed;
    timed.per_unit = in_graph > 0 ? in_graph : 1;
    timed.units = round_up(options.iterations, std::max(x.period, timed.per_unit)) / timed.per_unit;
    timed.unit = [&] {
        if (graph) {
            graph->launch(stream);
        } else {
            x.before(stream, next);
            x.enqueue(stream, next);
            next = (next + 1) % x.period;
        }
    };

    // Changing data, and ranks that are late in turn: before they send, and before they read.
    bool right = true;
    for (int turn = 0; turn < 6 * round_up(4, x.period); ++turn) {
        const bool late = (turn * 5 + job.rank * 3) % 4 == 0, slow = (turn + job.rank) % 3 == 0;
        if (late) idle<<<1, 1, 0, stream>>>(60'000);
        fill();
        const int k = graph ? in_graph - 1 : next;
        timed.unit();
        if (slow) idle<<<1, 1, 0, stream>>>(60'000);
        check(k % x.period);
    }
    right = clean();
    timed.prepare = fill;
    timed.check = [&] {
        for (int k = 0; k < x.period; ++k) check(k);
        return clean();
    };
    // 20 exchanges fill all buffers of all periods here, so that checks of several buffers see the same epoch.
    Row row = time_rounds(job, options, stream, timed);
    row.verified = row.verified && job.sum(right ? 0 : 1) == 0;
    row.launches = x.launches;
    row.note = x.note;
    if (graph) row.more.emplace_back("nodes", static_cast<double>(graph->nodes) / in_graph);
    CUDA(cudaFree(counts));
    return row;
}
