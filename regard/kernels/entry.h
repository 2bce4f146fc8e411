// What every entry of a compiled part does: it runs in no more threads than are safe, and turns what is thrown into a
// message, since no exception may leave a C function.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <new>
#include <stdexcept>

#include <omp.h>
#include <pthread.h>

namespace {

// -- threads -----------------------------------------------------------------------------------------------------------

// A forked process has none of its parent's threads, but OpenMP believes that it has, and would wait for them for ever.
std::atomic<bool> forked{false};
const int registered = pthread_atfork(nullptr, nullptr, [] { forked = true; });

// How many threads to ask for. Fewer may be given (OMP_THREAD_LIMIT, OMP_DYNAMIC, nested regions), so work is never
// shared out by the number that was asked for: a loop over shares is (`#pragma omp for`), whoever runs it.
inline int threads_for(int asked) { return forked ? 1 : std::max(asked, 1); }
inline int threads() { return threads_for(omp_get_max_threads()); }

// Keeps the first exception of a parallel region, which none may leave, until the region has ended.
class Failure {
    std::exception_ptr first;
    std::atomic<bool> failed{false};

public:
    template <class Work> void guard(Work work) noexcept {
        if (failed) return;
        try {
            work();
        } catch (...) {
            if (!failed.exchange(true)) first = std::current_exception();
        }
    }
    void rethrow() const {
        if (first) std::rethrow_exception(first);
    }
};

// -- sizes -------------------------------------------------------------------------------------------------------------

// The product of sizes, none of which may be negative.
inline size_t checked_product(std::initializer_list<int64_t> sizes) {
    size_t product = 1;
    for (int64_t size : sizes)
        if (size < 0 || __builtin_mul_overflow(product, size_t(size), &product) || product > size_t(INT64_MAX))
            throw std::length_error("a size is negative or too large to be counted");
    return product;
}

// -- errors ------------------------------------------------------------------------------------------------------------

constexpr int64_t FAILED = -1, NO_MEMORY = -2;
thread_local char message[256];  // of the last entry of this thread that failed

// Runs the body of an entry, which returns at least 0; FAILED or NO_MEMORY, and a message, if it throws.
template <class Body> int64_t guarded(Body body) noexcept {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        std::snprintf(message, sizeof message, "there is not enough memory");
        return NO_MEMORY;
    } catch (const std::exception& error) {
        std::snprintf(message, sizeof message, "%s", error.what());
    } catch (...) {
        std::snprintf(message, sizeof message, "unknown error");
    }
    return FAILED;
}

template <class... Values> [[noreturn]] void fail(const char* format, Values... values) {
    char text[sizeof message];
    std::snprintf(text, sizeof text, format, values...);
    throw std::invalid_argument(text);
}

}  // namespace

extern "C" const char* error_message() { return message; }
