// What every entry of a compiled part does: it turns what is thrown into a message, since no exception may leave a C function.

#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <new>
#include <stdexcept>

// The head of a function that is called from outside. A library that is compiled several times over has each several times,
// under names that begin with PREFIX.
#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif
#ifdef PREFIX
#define JOINED(a, b) a##b
#define NAMED(prefix, name) JOINED(prefix, name)
#else
#define PREFIX
#define NAMED(prefix, name) name
#endif
#define ENTRY(Result, name) extern "C" EXPORTED Result NAMED(PREFIX, name)

namespace {

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

ENTRY(const char*, error_message)() { return message; }
