// Vectors of 16 numbers, float32 inside whatever they are in memory: what the kernels are written in.
//
// They are the compiler's own (one AVX-512 register, two of AVX2, four of NEON).

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace {

using std::int64_t;
typedef float Floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t Words __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t Halves __attribute__((vector_size(32), aligned(2), may_alias));
constexpr int W = 16;

struct bf16 { uint16_t bits; };

inline Floats all(float x) { return Floats{} + x; }

// Read and written where they lie: of a copy by memcpy GCC makes two of half a register each, on their way through the
// stack, and whoever reads the whole then waits for both.
inline Floats load(const float* p) { return *(const Floats*)p; }
inline void store(float* p, Floats x) { *(Floats*)p = x; }
inline Floats load(const bf16* p) {
    Halves h = *(const Halves*)p;
#ifdef __AVX512F__
    return (Floats)(((Words)_mm512_cvtepu16_epi32((__m256i)h)) << 16);  // in one token, and not in two halves
#else
    return (Floats)(__builtin_convertvector(h, Words) << 16);
#endif
}
inline Words rounded(Words u) { return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16; }  // to nearest, ties to even
#ifdef __AVX512BF16__
inline void store(bf16* p, Floats x) { _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh((__m512)x)); }
#else
inline void store(bf16* p, Floats x) {
    *(Halves*)p = __builtin_convertvector(rounded((Words)x), Halves);
}
#endif
inline float load1(const float* p) { return *p; }
inline float load1(const bf16* p) { uint32_t u = uint32_t(p->bits) << 16; float x; std::memcpy(&x, &u, 4); return x; }
inline void store1(float* p, float x) { *p = x; }
inline void store1(bf16* p, float x) {
    uint32_t u; std::memcpy(&u, &x, 4);
    p->bits = uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline Floats pick(Ints where, Floats yes, Floats no) { return where ? yes : no; }
#ifdef __AVX512F__
inline Floats larger(Floats x, Floats y) { return (Floats)_mm512_max_ps((__m512)x, (__m512)y); }
#else
inline Floats larger(Floats x, Floats y) { return pick(x > y, x, y); }
#endif

// Both halves folded upon each other until one number is left.
template <class Fold> inline float fold(Floats x, Fold f) {
    x = f(x, __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    x = f(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
    x = f(x, __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    x = f(x, __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
    return x[0];
}
inline float sum(Floats x) { return fold(x, [](Floats a, Floats b) { return a + b; }); }
inline float largest(Floats x) { return fold(x, larger); }

// e^x for x <= 0, to about 2 units in the last place; 0 below -87, since a processor takes its time for numbers that are so
// small that they have fewer digits.
inline Floats exponential(Floats x) {
    const Ints none = x < all(-87.0f);
    x = larger(x, all(-87.0f));
#ifdef __AVX512F__
    Floats n = (Floats)_mm512_roundscale_ps((__m512)(x * 1.44269504f), 0);
#else
    Floats n = x * 1.44269504f + 12582912.0f;  // adding 1.5 * 2^23 rounds to an integer
    n -= 12582912.0f;
#endif
    Floats r = x - n * 0.693145752f - n * 1.42860677e-6f;
    Floats p = all(1.9875691e-4f);
    p = p * r + 1.3981999e-3f;
    p = p * r + 8.3334519e-3f;
    p = p * r + 4.1665796e-2f;
    p = p * r + 1.6666665e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
#ifdef __AVX512F__
    p = (Floats)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    p *= (Floats)((__builtin_convertvector(n, Ints) + 127) << 23);
#endif
    return pick(none, all(0.0f), p);
}

// f of the constant n, at most MOST: what is known to the compiler stays in registers.
template <int MOST, class F> inline void with_rows(int n, F f) {
    if constexpr (MOST > 1)
        if (n < MOST) return with_rows<MOST - 1>(n, f);
    f(std::integral_constant<int, MOST>{});
}

// Sixteen rows become sixteen columns: four times, row i and row i + 8 are interleaved.
inline void transpose(Floats (&x)[W]) {
    for (int round = 0; round < 4; round++) {
        Floats y[W];
        for (int i = 0; i < 8; i++) {
            y[2 * i] = __builtin_shufflevector(x[i], x[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            y[2 * i + 1] =
                __builtin_shufflevector(x[i], x[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        for (int i = 0; i < W; i++) x[i] = y[i];
    }
}

#ifdef __AVX512BF16__
// The first n of 16.
inline __mmask16 first(int n) { return n >= 16 ? 0xffff : n > 0 ? __mmask16((1 << n) - 1) : 0; }
inline __m256i rounded(Floats x) { return (__m256i)_mm512_cvtneps_pbh((__m512)x); }
// Sixteen numbers in bfloat16 and sixteen more, side by side in words: what the processor's dot product sums together.
inline __m512i paired(__m256i even, __m256i odd) {
    return _mm512_cvtepu16_epi32(even) | _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16);
}
#endif

}  // namespace
