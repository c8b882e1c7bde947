// The processes of one run: one a GPU if there are enough, all on this host.
//
// A Job is what the harness needs of them: who am I, wait for the others, tell the others something. `ForkJob` forks them
// itself, so that the peers need no launcher; the MPI peer has a Job of its own over MPI.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct Job {
    int rank = 0;
    int size = 1;

    virtual ~Job() = default;
    virtual void barrier() = 0;
    // Gives `bytes` of every rank to every rank, in the order of the ranks.
    virtual void all_gather(const void* mine, size_t bytes, void* all) = 0;

    template <class T>
    std::vector<T> gathered(const T& mine) {
        std::vector<T> all(size);
        all_gather(&mine, sizeof(T), all.data());
        return all;
    }
    double max(double mine) {
        auto all = gathered(mine);
        return *std::max_element(all.begin(), all.end());
    }
    double sum(double mine) {
        double total = 0;
        for (double one : gathered(mine)) total += one;
        return total;
    }
    // The bytes that rank 0 has.
    template <class T>
    T from_first(const T& mine) {
        return gathered(mine)[0];
    }
};

class ForkJob final : public Job {
  public:
    static constexpr size_t max_ranks = 64;
    static constexpr size_t message = 4096;
    static constexpr size_t user_bytes = 1 << 20;

    // Runs `body` in `ranks` processes and returns their exit code: 0 when all returned 0. Must be called before the first
    // CUDA call. The first process that fails takes the others with it, and so does the time limit.
    static int run(int ranks, int limit_s, const std::function<int(ForkJob&)>& body) {
        if (ranks < 1 || ranks > static_cast<int>(max_ranks)) {
            std::fprintf(stderr, "between 1 and %zu ranks, not %d\n", max_ranks, ranks);
            return 2;
        }
        void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            std::perror("mmap");
            return 2;
        }
        auto* shared = new (memory) Shared;
        std::fflush(nullptr);
        const pid_t parent = getpid();
        std::vector<pid_t> children;
        for (int rank = 0; rank < ranks; ++rank) {
            const pid_t child = fork();
            if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() != parent) _exit(3);
                _exit(child_main(rank, ranks, shared, body));
            }
            if (child < 0) {
                std::perror("fork");
                break;
            }
            children.push_back(child);
        }
        return wait_for(children, ranks, limit_s);
    }

    void barrier() override {
        const uint32_t turn = shared_->turn.load();
        if (shared_->arrived.fetch_add(1) + 1 == static_cast<uint32_t>(size)) {
            shared_->arrived.store(0);
            shared_->turn.fetch_add(1);
            return;
        }
        for (int spins = 0; shared_->turn.load() == turn; ++spins) {
            if (spins > 20000) sched_yield();
        }
    }

    void all_gather(const void* mine, size_t bytes, void* all) override {
        if (bytes > message) throw std::runtime_error("a message between ranks is too long");
        std::memcpy(shared_->box[rank], mine, bytes);
        barrier();
        for (int other = 0; other < size; ++other) {
            std::memcpy(static_cast<char*>(all) + other * bytes, shared_->box[other], bytes);
        }
        barrier();
    }

    // Memory that all ranks see at the same address; zero at first.
    void* user_memory() { return shared_->user; }

  private:
    struct Shared {
        alignas(64) std::atomic<uint32_t> arrived{0};
        alignas(64) std::atomic<uint32_t> turn{0};
        alignas(64) char box[max_ranks][message];
        alignas(4096) char user[user_bytes];
    };
    Shared* shared_ = nullptr;

    static int child_main(int rank, int ranks, Shared* shared, const std::function<int(ForkJob&)>& body) {
        ForkJob job;
        job.rank = rank;
        job.size = ranks;
        job.shared_ = shared;
        int code = 1;
        try {
            code = body(job);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        }
        std::fflush(nullptr);
        return code;
    }

    static int wait_for(std::vector<pid_t> children, int ranks, int limit_s) {
        using clock = std::chrono::steady_clock;
        auto end = clock::now() + std::chrono::seconds(limit_s);
        int worst = static_cast<int>(children.size()) == ranks ? 0 : 3;
        bool stopped = false;
        while (!children.empty()) {
            int status = 0;
            const pid_t ended = waitpid(-1, &status, WNOHANG);
            if (ended > 0) {
                children.erase(std::remove(children.begin(), children.end(), ended), children.end());
                const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
                if (code > 1 || (code == 1 && !stopped)) {
                    // The others may wait for it for ever; a second is enough for those that do not.
                    end = std::min(end, clock::now() + std::chrono::seconds(1));
                }
                if (!stopped) worst = std::max(worst, code);
                continue;
            }
            if (clock::now() > end && !stopped) {
                stopped = true;
                worst = std::max(worst, 1);
                std::fprintf(stderr, "stopping %zu processes that did not end\n", children.size());
                for (pid_t child : children) kill(child, SIGKILL);
            }
            usleep(2000);
        }
        return worst;
    }
};
