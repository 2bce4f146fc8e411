// Threads that go through the same work together, and wait for each other in between.

#pragma once

#include <atomic>
#include <utility>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "entry.h"

namespace {

struct Barrier {
    std::atomic<int> waiting{0}, round{0}, asleep{0};
};

// One of `size` threads that do the same work together.
struct Team {
    int id, size;
    Barrier& barrier;

    void wait() {
        if (size == 1) return;
        int round = barrier.round.load();
        if (barrier.waiting.fetch_add(1) + 1 == size) {
            barrier.waiting.store(0);
            barrier.round.store(round + 1);
            if (barrier.asleep.load()) syscall(SYS_futex, &barrier.round, FUTEX_WAKE_PRIVATE, size, nullptr, nullptr, 0);
            return;
        }
        for (int spins = 0; spins < 3000; spins++) {
            if (barrier.round.load() != round) return;
#ifdef __x86_64__
            _mm_pause();
#endif
        }
        barrier.asleep.fetch_add(1);  // somebody has no core to run on: leave this one to whoever waits for it
        while (barrier.round.load() == round)
            syscall(SYS_futex, &barrier.round, FUTEX_WAIT_PRIVATE, round, nullptr, nullptr, 0);
        barrier.asleep.fetch_sub(1);
    }
    std::pair<int, int> share(int n) const { return {int(int64_t(n) * id / size), int(int64_t(n) * (id + 1) / size)}; }
};

// Runs work(team) in `threads` threads, or fewer if there are not so many. No thread may throw before its last wait, since
// the others would wait for it for ever; what one throws behind that is thrown again here.
template <class Work> void together(int threads, Work work) {
    Barrier barrier;
    Failure failure;
#pragma omp parallel num_threads(threads_for(threads))
    {
        Team team{omp_get_thread_num(), omp_get_num_threads(), barrier};
        failure.guard([&] { work(team); });
    }
    failure.rethrow();
}

}  // namespace
