// What a weight is, in three kinds, and how sixteen columns of weights are multiplied with one row.

#pragma once

#include <cmath>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "vectors.h"

namespace {

typedef uint8_t Bytes __attribute__((vector_size(16), aligned(1), may_alias));
typedef int8_t SignedBytes __attribute__((vector_size(16), aligned(1), may_alias));
constexpr int PANEL = 64;  // columns of a matrix that are multiplied together
constexpr float LOWEST = -std::numeric_limits<float>::infinity();

// The bytes of a register, and how many rows and registers of a panel's columns a product keeps at a time.
#if defined(__AVX512F__)
constexpr int LANE = 64, R = 6, V = 4;
#elif defined(__AVX2__)
constexpr int LANE = 32, R = 6, V = 2;
#elif defined(__aarch64__)
constexpr int LANE = 16, R = 6, V = 4;
#else
constexpr int LANE = 16, R = 4, V = 2;
#endif
typedef float FloatLane __attribute__((vector_size(LANE), aligned(4), may_alias));
typedef int32_t IntLane __attribute__((vector_size(LANE), aligned(4), may_alias));
typedef uint32_t WordLane __attribute__((vector_size(LANE), aligned(4), may_alias));

inline void store(FloatLane* p, FloatLane x) { *p = x; }  // a register at a time: an array that is copied whole is kept in memory
inline void store(IntLane* p, IntLane x) { *p = x; }
inline float smallest(Floats x) { return -largest(-x); }

// A bit for each number above `floor`.
inline unsigned above(Floats x, float floor) {
#ifdef __AVX512F__
    return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(floor), _CMP_GT_OQ);
#else
    unsigned bits = 0;
    for (int i = 0; i < W; i++) bits |= unsigned(x[i] > floor) << i;
    return bits;
#endif
}

// The sums of sixteen vectors as one vector: four times, pairs are folded side by side.
inline Floats sums(Floats (&x)[W]) {
    for (int i = 0; i < 8; i++)
        x[i] = __builtin_shufflevector(x[i], x[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
               __builtin_shufflevector(x[i], x[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    for (int i = 0; i < 4; i++)
        x[i] = __builtin_shufflevector(x[i], x[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +
               __builtin_shufflevector(x[i], x[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    for (int i = 0; i < 2; i++)
        x[i] = __builtin_shufflevector(x[i], x[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
               __builtin_shufflevector(x[i], x[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    return __builtin_shufflevector(x[0], x[1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
           __builtin_shufflevector(x[0], x[1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
}


// -- kinds of numbers ---------------------------------------------------------------------------------------------------

// A kind says what a weight is, how many make a word of 32 bits, and how a register of sums takes up its columns' words
// times one row's word. Kept is what keys and values are kept in; from TILES_FROM rows on, tiles are the quicker way.

struct Float32 {
    typedef float Weight, Kept;
    typedef Floats Sums;
    typedef FloatLane Sum;
    static constexpr int PER_WORD = 1, TILES_FROM = 1 << 30;
    static inline Sum step(Sum s, int32_t a, IntLane b) {
        float x; std::memcpy(&x, &a, 4);
        return s + x * (FloatLane)b;
    }
};

struct Bfloat16 {
    typedef bf16 Weight, Kept;
    typedef Floats Sums;
    typedef FloatLane Sum;
    static constexpr int PER_WORD = 2, TILES_FROM = 1;
#ifdef __AVX512BF16__
    static inline Sum step(Sum s, int32_t a, IntLane b) {
        return (Sum)_mm512_dpbf16_ps((__m512)s, (__m512bh)_mm512_set1_epi32(a), (__m512bh)b);
    }
#else
    static inline Sum step(Sum s, int32_t a, IntLane b) {
        uint32_t low = uint32_t(a) << 16, high = uint32_t(a) & 0xffff0000u;
        float x, y; std::memcpy(&x, &low, 4); std::memcpy(&y, &high, 4);
        return s + x * (FloatLane)((WordLane)b << 16) + y * (FloatLane)((WordLane)b & 0xffff0000u);
    }
#endif
};

// A row's bytes have no sign where there is an instruction for such products, of 8 bits and 8 bits with a sign.
struct Int8 {
    typedef int8_t Weight;
    typedef bf16 Kept;
    typedef Ints Sums;
    typedef IntLane Sum;
    static constexpr int PER_WORD = 4, TILES_FROM = 5;
#if defined(__AVX512VNNI__)
    static constexpr bool SIGNED = false;
    static constexpr int LARGEST = 255;
    static inline Sum step(Sum s, int32_t a, IntLane b) {
        return (Sum)_mm512_dpbusd_epi32((__m512i)s, _mm512_set1_epi32(a), (__m512i)b);
    }
#elif defined(__AVXVNNI__)
    static constexpr bool SIGNED = false;
    static constexpr int LARGEST = 255;
    static inline Sum step(Sum s, int32_t a, IntLane b) {
        return (Sum)_mm256_dpbusd_avx_epi32((__m256i)s, _mm256_set1_epi32(a), (__m256i)b);
    }
#elif defined(__AVX2__)
    static constexpr bool SIGNED = false;
    static constexpr int LARGEST = 127;  // two products are summed in 16 bits, and must fit
    static inline Sum step(Sum s, int32_t a, IntLane b) {
        __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi32(a), (__m256i)b);
        return s + (Sum)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    }
#elif defined(__ARM_FEATURE_MATMUL_INT8)
    static constexpr bool SIGNED = false;
    static constexpr int LARGEST = 255;
    static inline Sum step(Sum s, int32_t a, IntLane b) {
        return (Sum)vusdotq_s32((int32x4_t)s, (uint8x16_t)vdupq_n_s32(a), (int8x16_t)b);
    }
#elif defined(__ARM_FEATURE_DOTPROD)
    static constexpr bool SIGNED = true;
    static constexpr int LARGEST = 255;
    static inline Sum step(Sum s, int32_t a, IntLane b) {
        return (Sum)vdotq_s32((int32x4_t)s, (int8x16_t)b, (int8x16_t)vdupq_n_s32(a));
    }
#else
    static constexpr bool SIGNED = false;
    static constexpr int LARGEST = 255;
    static inline Sum step(Sum s, int32_t a, IntLane b) {
        for (int i = 0; i < 4; i++) s += int32_t(uint8_t(a >> 8 * i)) * (b << (24 - 8 * i) >> 24);
        return s;
    }
#endif
};

}  // namespace
