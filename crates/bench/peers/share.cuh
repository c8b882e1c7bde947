// Whole Faces shares: pack, exchange, unpack, with the kernels of the benchmark; compute on a second stream if wanted.
//
// Every run starts from the initial values by global element indices, and its result is compared, value by value, with the
// closed form: after K shares a point with c copies is c^K times the average of its initial copies.
#pragma once

#include "harness.cuh"

#include "faces.cu"

// The terms of a coordinate in one dimension (point i of element j at [j * n + i]).
struct Coordinate {
    double average;  // this dimension's part of the initial value, averaged over its one or two copies
    int doubled;     // whether there are two
    int end;         // first or last of the block
};

struct Expected {
    const Coordinate* of[3];
    unsigned n, m[3];
    int shares;
    int compute;
};

// counts[0] += wrong, counts[1] += compared.
static __global__ void check_block(Expected expected, const double* u, unsigned long long values,
                                   unsigned long long* counts) {
    const unsigned n = expected.n;
    unsigned long long wrong = 0, compared = 0;
    for (unsigned long long at = blockIdx.x * 1ull * blockDim.x + threadIdx.x; at < values; at += gridDim.x * blockDim.x) {
        const auto point = static_cast<unsigned>(at % (n * n * n)), element = static_cast<unsigned>(at / (n * n * n));
        const unsigned i[3] = {point % n, point / n % n, point / (n * n)};
        const unsigned j[3] = {element % expected.m[0], element / expected.m[0] % expected.m[1],
                               element / (expected.m[0] * expected.m[1])};
        double value = 0;
        int doubled = 0, end = 0;
        double own = 0;
        for (int d = 2; d >= 0; --d) {
            const auto& c = expected.of[d][j[d] * n + i[d]];
            value = __dadd_rn(value, c.average);
            doubled += c.doubled;
            end |= c.end;
        }
        if (end || expected.compute) {
            own = scalbn(value, doubled * expected.shares);
        } else {
            // Not summed: the initial value, without the averages.
            const Coordinate* last[3];
            for (int d = 0; d < 3; ++d) last[d] = expected.of[d] + expected.m[d] * n;
            for (int d = 2; d >= 0; --d) own = __dadd_rn(own, last[d][j[d] * n + i[d]].average);
        }
        const double got = u[at];
        const double error = got == own ? 0 : fabs(got / 2 - own / 2) / (fabs(got) / 2 + fabs(own) / 2);
        wrong += !(isfinite(got) && error < 1e-15);
        compared += 1;
    }
    if (wrong != 0) atomicAdd(counts, wrong);
    atomicAdd(counts + 1, compared);
}

class ShareCheck {
  public:
    ShareCheck(const Layout& layout, int shares, bool compute) : values_(layout.geometry.values) {
        const auto& p = layout.problem;
        const int at[3] = {layout.rank % p.grid[0], layout.rank / p.grid[0] % p.grid[1],
                           layout.rank / (p.grid[0] * p.grid[1])};
        const double of_element[3] = {1, 1e2, 1e4}, of_point[3] = {1e-6, 1e-4, 1e-2};
        expected_ = {};
        expected_.n = p.n;
        expected_.shares = shares;
        expected_.compute = compute;
        for (int d = 0; d < 3; ++d) {
            const int n = static_cast<int>(p.n), m = static_cast<int>(p.m[d]), offset = at[d] * m;
            const int all = p.grid[d] * m;
            const auto part = [&](int i, int j) { return of_element[d] * j + of_point[d] * i; };
            // Averages, and behind them the plain parts.
            std::vector<Coordinate> table(static_cast<size_t>(2) * m * n);
            for (int j = 0; j < m; ++j) {
                for (int i = 0; i < n; ++i) {
                    const double own = part(i, j + offset);
                    Coordinate c{own, 0, (i == 0 && j == 0) || (i == n - 1 && j == m - 1)};
                    table[static_cast<size_t>(m) * n + j * n + i] = c;
                    if (i == 0 && j + offset > 0) {
                        c.average = (own + part(n - 1, j + offset - 1)) / 2;
                        c.doubled = 1;
                    } else if (i == n - 1 && j + offset + 1 < all) {
                        c.average = (own + part(0, j + offset + 1)) / 2;
                        c.doubled = 1;
                    }
                    table[static_cast<size_t>(j) * n + i] = c;
                }
            }
            expected_.m[d] = p.m[d];
            Coordinate* device = nullptr;
            CUDA(cudaMalloc(&device, table.size() * sizeof(Coordinate)));
            CUDA(cudaMemcpy(device, table.data(), table.size() * sizeof(Coordinate), cudaMemcpyHostToDevice));
            expected_.of[d] = device;
        }
        CUDA(cudaMalloc(&counts_, 16));
    }
    ShareCheck(const ShareCheck&) = delete;
    ~ShareCheck() {
        for (auto* table : expected_.of) cudaFree(const_cast<Coordinate*>(table));
        cudaFree(counts_);
    }

    // Whether the block is right; for ever false once it was not.
    bool passed(const double* u, cudaStream_t stream) {
        CUDA(cudaMemsetAsync(counts_, 0, 16, stream));
        check_block<<<512, 256, 0, stream>>>(expected_, u, values_, counts_);
        CUDA(cudaGetLastError());
        unsigned long long seen[2];
        CUDA(cudaMemcpyAsync(seen, counts_, 16, cudaMemcpyDeviceToHost, stream));
        CUDA(cudaStreamSynchronize(stream));
        wrong_ = seen[0] != 0 ? seen[0] : wrong_;
        return wrong_ == 0 && seen[1] == values_;
    }
    unsigned long long wrong() const { return wrong_; }

  private:
    Expected expected_{};
    unsigned long long values_;
    unsigned long long* counts_ = nullptr;
    unsigned long long wrong_ = 0;
};

static __global__ void number(double* u, unsigned long long values) {
    for (unsigned long long i = blockIdx.x * 1ull * blockDim.x + threadIdx.x; i < values; i += gridDim.x * blockDim.x) {
        u[i] = static_cast<double>(i);
    }
}
static __global__ void rounded(const double* packed, unsigned* list, unsigned long long values) {
    for (unsigned long long i = blockIdx.x * 1ull * blockDim.x + threadIdx.x; i < values; i += gridDim.x * blockDim.x) {
        list[i] = static_cast<unsigned>(packed[i]);
    }
}

// Where in the block each packed value comes from: what the pack kernel makes of a block whose values are their own places.
class PackedFrom {
  public:
    explicit PackedFrom(const Layout& layout) {
        const auto& g = layout.geometry;
        if (g.values > 0xffffffffull) throw std::runtime_error("places of this block do not fit 32 bits");
        double *u = nullptr, *packed = nullptr;
        CUDA(cudaMalloc(&u, g.values * sizeof(double)));
        CUDA(cudaMalloc(&packed, layout.packed_bytes()));
        CUDA(cudaMemset(packed, 0, layout.packed_bytes()));
        CUDA(cudaMalloc(&list_, layout.packed() * sizeof(unsigned)));
        number<<<512, 256>>>(u, g.values);
        faces_pack<<<layout.grids.pack, FACES_TILE>>>(g, u, g.values, packed, g.packed);
        rounded<<<512, 256>>>(packed, list_, g.packed);
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaFree(u));
        CUDA(cudaFree(packed));
    }
    PackedFrom(const PackedFrom&) = delete;
    ~PackedFrom() { cudaFree(list_); }
    const unsigned* list() const { return list_; }

  private:
    unsigned* list_ = nullptr;
};

// A block, and the streams that work on it.
class Share {
  public:
    Share(const Layout& layout, cudaStream_t stream, bool compute) : layout_(layout), stream_(stream), compute_(compute) {
        CUDA(cudaMalloc(&u_, layout.geometry.values * sizeof(double)));
        CUDA(cudaStreamCreateWithFlags(&inside_, cudaStreamNonBlocking));
        CUDA(cudaEventCreateWithFlags(&fork_, cudaEventDisableTiming));
        CUDA(cudaEventCreateWithFlags(&join_, cudaEventDisableTiming));
    }
    Share(const Share&) = delete;
    ~Share() {
        cudaFree(u_);
        cudaStreamDestroy(inside_);
        cudaEventDestroy(fork_);
        cudaEventDestroy(join_);
    }

    void initialise() {
        CUDA(cudaDeviceSynchronize());
        faces_init<<<layout_.grids.init, FACES_TILE, 0, stream_>>>(layout_.geometry, u_, layout_.geometry.values);
        CUDA(cudaGetLastError());
        CUDA(cudaStreamSynchronize(stream_));
    }

    // Share k. What is inside the block depends on nothing that the exchange does, so its stream never waits for the other.
    void enqueue(Exchange& x, int k) {
        const auto& g = layout_.geometry;
        if (compute_) launch(faces_compute, layout_.grids.compute, FACES_TILE, inside_, x.early, g, u_, g.values);
        x.before(stream_, k % x.period);
        if (x.gathers) {
            x.from(u_);
        } else {
            launch(faces_pack, layout_.grids.pack, FACES_TILE, stream_, x.early && x.behind_kernel, g, u_, g.values,
                   x.source(), g.packed);
        }
        x.enqueue(stream_, k % x.period);
        launch(faces_unpack_packed, layout_.grids.unpack, FACES_TILE, stream_,
               x.early && x.ends_in_kernel && !shared_gpus, g,
               x.slots(k % x.period), g.packed, u_, g.values);
    }

    // Inside a capture: the second stream belongs to it from here on, …
    void fork() {
        if (!compute_) return;
        CUDA(cudaEventRecord(fork_, stream_));
        CUDA(cudaStreamWaitEvent(inside_, fork_, 0));
    }
    // … to here.
    void join() {
        if (!compute_) return;
        CUDA(cudaEventRecord(join_, inside_));
        CUDA(cudaStreamWaitEvent(stream_, join_, 0));
    }

    const double* block() const { return u_; }

  private:
    const Layout& layout_;
    cudaStream_t stream_, inside_ = nullptr;
    cudaEvent_t fork_ = nullptr, join_ = nullptr;
    bool compute_;
    double* u_ = nullptr;
};

inline Row measure_share(Job& job, const Options& options, const Layout& layout, cudaStream_t stream, Exchange& x,
                         int in_graph) {
    if (options.shares % std::max(in_graph, 1) != 0 || options.shares % x.period != 0) {
        throw std::runtime_error("--shares must be a multiple of the shares of a graph, and of " + std::to_string(x.period));
    }
    Share share(layout, stream, options.compute);
    ShareCheck check(layout, options.shares, options.compute);
    std::unique_ptr<Graph> graph;
    if (in_graph > 0) {
        graph = std::make_unique<Graph>(stream, [&] {
            share.fork();
            for (int k = 0; k < in_graph; ++k) share.enqueue(x, k);
            share.join();
        }, options.compute);
        job.barrier();
    }
    int next = 0;
    Timed timed;
    timed.per_unit = in_graph > 0 ? in_graph : 1;
    timed.units = options.shares / timed.per_unit;
    timed.prepare = [&] { share.initialise(); };
    timed.unit = [&] {
        if (graph) {
            graph->launch(stream);
        } else {
            share.enqueue(x, next);
            next = (next + 1) % x.period;
        }
    };
    timed.check = [&] { return check.passed(share.block(), stream); };
    Row row = time_rounds(job, options, stream, timed);
    row.launches = x.launches > 0 ? x.launches + (x.gathers ? 1 : 2) + (options.compute ? 1 : 0) : 0;
    row.note = x.note;
    if (check.wrong() != 0) row.note = std::to_string(check.wrong()) + " values are wrong; " + row.note;
    if (graph) row.more.emplace_back("nodes", static_cast<double>(graph->nodes) / in_graph);
    row.more.emplace_back("shares", options.shares);
    row.more.emplace_back("compute", options.compute ? 1 : 0);
    return row;
}

// All rows of one way to exchange: enqueued one by one, and captured.
inline void run_rows(Job& job, const Options& options, const Layout& layout, cudaStream_t stream, Report& report,
                     const std::string& name, const std::function<std::unique_ptr<Exchange>()>& make) {
    std::vector<int> graphs = {0};
    graphs.insert(graphs.end(), options.unroll.begin(), options.unroll.end());
    std::unique_ptr<Exchange> x;
    for (int wanted : graphs) {
        const std::string kind = wanted == 0 ? "" : wanted == 1 ? ", graph" : ", graph of " + std::to_string(wanted);
        const std::string row_name = name + kind + options.tag;
        if (!options.wants(row_name)) continue;
        try {
            if (!x) {
                x = make();
                CUDA(cudaDeviceSynchronize());
                job.barrier();
            }
            if (wanted > 0 && !x->graphs) continue;
            // A graph holds whole periods.
            const int in_graph = wanted == 0 ? 0 : round_up(wanted, x->period);
            Row row = options.mode == "share" ? measure_share(job, options, layout, stream, *x, in_graph)
                                              : measure_exchange(job, options, layout, stream, *x, in_graph);
            row.row = row_name;
            row.more.emplace_back("in_graph", in_graph);
            report.add(row);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "rank %d: %s: %s\n", job.rank, row_name.c_str(), error.what());
            report.fail(row_name, error.what());
            throw;
        }
    }
}
