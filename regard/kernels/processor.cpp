// Which kinds of processors this one is, of those that a library is compiled for; and which C++ files that was.

#include <cstdint>
#include <cstring>

#include "entry.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include "permission.h"
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace {

#if defined(__x86_64__)
struct Features {
    unsigned a = 0, b = 0, c = 0, d = 0;
    Features(unsigned leaf, unsigned part) {
        if (__get_cpuid_max(leaf & 0x80000000u, nullptr) >= leaf) __cpuid_count(leaf, part, a, b, c, d);
    }
};
bool all_of(unsigned flags, std::initializer_list<int> bits) {
    for (int bit : bits)
        if (!(flags >> bit & 1)) return false;
    return true;
}

// Whether the processor has a kind's instructions and the system keeps their registers.
bool can(const char* kind) {
    auto is = [&](const char* name) { return !std::strcmp(kind, name); };
    if (is("generic")) return true;
    const Features first(1, 0), seventh(7, 0), bf16(7, 1), extended(0x80000001u, 0);
    if (!all_of(first.c, {12, 22, 23, 26, 27, 28, 29})) return false;  // FMA, MOVBE, POPCNT, XSAVE, OSXSAVE, AVX, F16C
    if (!all_of(extended.c, {0, 5})) return false;                     // LAHF, LZCNT
    unsigned low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    const bool avx2 = all_of(seventh.b, {3, 5, 8}) && (low & 0x6) == 0x6;  // BMI1, AVX2, BMI2
    const bool avx512 = avx2 && all_of(seventh.b, {16, 17, 28, 30, 31}) && all_of(seventh.c, {11}) && (low & 0xe6) == 0xe6;
    const bool rounds = avx512 && all_of(bf16.a, {5});
    const bool tiles = rounds && all_of(seventh.d, {22, 24, 25}) && (low >> 17 & 3) == 3;  // of bfloat16, at all, of whole numbers
    return (is("avx2") && avx2) || (is("avx512") && avx512) || (is("avx512_bf16") && rounds) ||
           (is("amx") && tiles && tiles_allowed());
}
#elif defined(__aarch64__)
bool can(const char* kind) {
    auto is = [&](const char* name) { return !std::strcmp(kind, name); };
#ifdef __linux__
    const bool products = getauxval(AT_HWCAP) >> 20 & 1, matrices = getauxval(AT_HWCAP2) >> 13 & 1;
#elif defined(__APPLE__)
    int matrices = 0;
    size_t size = sizeof matrices;
    const bool products = true;  // every ARM processor of Apple's has them
    if (sysctlbyname("hw.optional.arm.FEAT_I8MM", &matrices, &size, nullptr, 0)) matrices = 0;
#else
    const bool products = false, matrices = false;
#endif
    return is("neon") || (is("dotprod") && products) || (is("i8mm") && products && matrices);
}
#else
bool can(const char*) { return false; }
#endif

}  // namespace

#define STRING(x) #x
#define STRING_OF(x) STRING(x)

ENTRY(int64_t, can_run)(const char* kind) { return can(kind); }
ENTRY(const char*, sources_digest)() { return STRING_OF(SOURCES); }
