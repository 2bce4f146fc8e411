// Threads that do the same work together, and wait for each other in between: PyTorch's own where it has handed over its
// OpenMP, since a second pool would fight with it for the cores; else a pool of this library.
//
// Fewer threads may be given than are asked for, so work is shared out by the number that there really is.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#ifndef _WIN32
#include <pthread.h>
#include <unistd.h>
#endif
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "entry.h"

namespace {

// -- waiting -----------------------------------------------------------------------------------------------------------

// A number that threads wait for: they spin for some microseconds, then sleep, and leave the core to whoever they wait for.
struct Signal {
    std::atomic<int> value{0}, asleep{0};

    void set(int next) {
        value.store(next);
        if (asleep.load()) value.notify_all();
    }
    void wait_while(int old) {
        for (int spins = 0; spins < 3000; spins++) {
            if (value.load() != old) return;
#if defined(__x86_64__)
            _mm_pause();
#elif defined(__aarch64__)
            asm volatile("isb");
#endif
        }
        asleep.fetch_add(1);
        while (value.load() == old) value.wait(old);
        asleep.fetch_sub(1);
    }
};

struct Barrier {
    std::atomic<int> waiting{0};
    Signal round;
};

// One of `size` threads that do the same work together.
struct Team {
    int id, size;
    Barrier& barrier;

    void wait() {
        if (size == 1) return;
        int round = barrier.round.value.load();
        if (barrier.waiting.fetch_add(1) + 1 < size) return barrier.round.wait_while(round);
        barrier.waiting.store(0);
        barrier.round.set(round + 1);
    }
    template <class Int> std::pair<Int, Int> share(Int n) const {
        return {Int(int64_t(n) * id / size), Int(int64_t(n) * (id + 1) / size)};
    }
    // f(i) for each of n, this thread's share of them.
    template <class F> void each(int64_t n, F f) const {
        auto [first, last] = share(n);
        for (int64_t i = first; i < last; i++) f(i);
    }
};

// Hands out n things, `step` at a time, to whichever thread asks: f(i) for each.
struct Queue {
    std::atomic<int64_t> next{0};
    template <class F> void each(int64_t n, int64_t step, F f) {
        for (int64_t i; (i = next.fetch_add(step)) < n;)
            for (int64_t end = std::min(i + step, n); i < end; i++) f(i);
    }
};

// -- threads of this library ---------------------------------------------------------------------------------------------

typedef void (*Part)(void* work, int id, int size);

// Threads that wait for work. Several callers may come at once: each takes those that are idle, and new ones are started up
// to the number of processors, or as many as one caller asks for. They live as long as the process.
class Pool {
    struct Worker {
        Signal called;  // 1 while it works
        Part part;
        void* work;
        int id, size;
        Worker* next;

        void live() {
            for (;;) {
                called.wait_while(0);
                part(work, id, size);
                called.set(0);
            }
        }
    };
    std::mutex taking;
    Worker* idle = nullptr;
    int started = 0;

    // A forked process has none of its parent's threads, and perhaps a lock that nobody will open: it gets a pool of its own.
    static Pool& here() {
        static std::atomic<Pool*> pool{new Pool};
#ifndef _WIN32
        static std::atomic<pid_t> owner{getpid()};
        if (pid_t process = getpid(), before = owner.load(); before != process)
            if (owner.compare_exchange_strong(before, process)) pool.store(new Pool);
#endif
        return *pool.load();
    }

    // A list of at most `many` workers.
    Worker* take(int many) {
        std::lock_guard<std::mutex> lock(taking);
        Worker* taken = nullptr;
        const int most = std::max(many, int(std::thread::hardware_concurrency()) - 1);
        for (; many > 0; many--) {
            Worker* one = idle ? std::exchange(idle, idle->next) : started < most ? start() : nullptr;
            if (!one) break;
            one->next = taken, taken = one;
        }
        return taken;
    }

    Worker* start() try {
        auto one = std::make_unique<Worker>();
        std::thread(&Worker::live, one.get()).detach();
        started++;
        return one.release();
    } catch (const std::exception&) {  // no more threads, or no memory for one
        return nullptr;
    }

    void give_back(Worker* list) {
        std::lock_guard<std::mutex> lock(taking);
        while (list) {
            Worker* one = std::exchange(list, list->next);
            one->next = idle, idle = one;
        }
    }

public:
    static void run(int threads, Part part, void* work) {
        Pool& pool = here();
        Worker* team = threads > 1 ? pool.take(threads - 1) : nullptr;
        int size = 1;
        for (Worker* one = team; one; one = one->next) one->id = size++;
        for (Worker* one = team; one; one = one->next) {
            one->part = part, one->work = work, one->size = size;
            one->called.set(1);
        }
        part(work, 0, size);
        for (Worker* one = team; one; one = one->next) one->called.wait_while(1);
        if (team) pool.give_back(team);
    }
};

// -- threads of PyTorch ------------------------------------------------------------------------------------------------

// What is used of GNU's OpenMP, or of one that speaks its language.
struct OpenMP {
    void (*parallel)(void (*)(void*), void*, unsigned, unsigned);
    int (*id)();
    int (*size)();
    int (*most)();
} openmp{};
std::atomic<int> most_threads{1};  // where there is no OpenMP

// OpenMP in a forked process believes that it has its parent's threads, and would wait for them for ever.
#ifndef _WIN32
std::atomic<bool> forked{false};
const int registered = pthread_atfork(nullptr, nullptr, [] { forked = true; });
#else
constexpr bool forked = false;
#endif

// How many threads PyTorch works in.
inline int threads() { return openmp.most ? std::max(openmp.most(), 1) : most_threads.load(); }

// Runs work(team) in `threads` threads, or fewer if there are not so many. No thread may throw before its last wait, since
// the others would wait for it for ever; what one throws behind that is thrown again here.
template <class Work> void together(int threads, Work&& work) {
    struct Job {
        Work& work;
        Barrier barrier;
        Failure failure;
        void run(int id, int size) {
            failure.guard([&] { work(Team{id, size, barrier}); });
        }
    } job{work, {}, {}};
    if (openmp.parallel && !forked)
        openmp.parallel([](void* job) { ((Job*)job)->run(openmp.id(), openmp.size()); }, &job, unsigned(std::max(threads, 1)), 0);
    else if (openmp.parallel)
        job.run(0, 1);
    else
        Pool::run(threads, [](void* job, int id, int size) { ((Job*)job)->run(id, size); }, &job);
    job.failure.rethrow();
}

// f(i) for each of n, shared out among `threads` threads.
template <class F> void each(int threads, int64_t n, F f) {
    together(threads, [&](Team team) { team.each(n, f); });
}

}  // namespace

// Hands over the functions of PyTorch's OpenMP; without them, tells how many threads it works in.
ENTRY(void, use_openmp)(decltype(OpenMP::parallel) parallel, int (*id)(), int (*size)(), int (*most)()) {
    openmp = {parallel, id, size, most};
}
ENTRY(void, use_threads)(int most) { most_threads = std::max(most, 1); }
