// Products in the processor's dot product of bfloat16 (AVX512_BF16): how their factors lie, and the sums of a few rows.

#pragma once

#include <algorithm>

#include "entry.h"
#include "vectors.h"

#ifdef __AVX512BF16__

namespace {

constexpr int PANEL = 64;  // columns multiplied at a time: four vectors
constexpr int TALL = 6;    // rows multiplied at a time: 24 sums, which the registers hold

inline int64_t ceil(int64_t n, int64_t step) { return (n + step - 1) / step; }
inline __mmask32 first32(int n) { return n >= 32 ? ~0u : n > 0 ? (1u << n) - 1 : 0; }

// Hands out parts of a block of memory; without one it only counts.
struct Workspace {
    char* at;
    int64_t used = 0;
    template <class T> T* take(int64_t n) {
        T* found = (T*)(at + used);
        used += ceil(int64_t(checked_product({n, sizeof(T)})), 128) * 128;
        return found;
    }
};

// -- interleaving: two numbers that are summed together side by side in a 32-bit word ----------------------------------------

// A matrix B (2 pairs, N) as the dot product reads it: panel after panel of 64 columns, filled up with zeros.
struct Interleaved {
    uint32_t* at;
    int pairs, N;
    static int64_t words(int rows, int N) { return ceil(N, PANEL) * PANEL * (rows / 2); }
    uint32_t* panel(int j) const { return at + int64_t(j) * pairs; }
};

// Two rows, 32 columns of each.
inline void interleave(const bf16* x, const bf16* y, __mmask32 where, __mmask32 second, uint32_t* out) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8,
                                         39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    __m512i a = _mm512_maskz_loadu_epi16(where, x), b = _mm512_maskz_loadu_epi16(second, y);
    _mm512_storeu_si512(out, _mm512_permutex2var_epi16(a, low, b));
    _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi16(a, high, b));
}

// Panels of B = x (rows, N), columns `from` to `to`, row by row as they lie; an odd last row is paired with zeros.
inline void interleave_rows(const bf16* x, int64_t row, int rows, int from, int to, const Interleaved& b) {
    for (int i = 0; i < rows; i += 2)
        for (int j = from; j < to; j += 32) {
            __mmask32 where = first32(b.N - j);
            const bf16* at = x + i * row + j;
            interleave(at, at + row, where, i + 1 < rows ? where : 0, b.panel(j / PANEL * PANEL) + i / 2 * PANEL + j % PANEL);
        }
}

// A panel of B = w^T, w (N, K): rows j on of w become columns, 16 and then those `apart` from them, four times.
inline void interleave_columns(const bf16* w, int N, int K, int j, uint32_t* panel, int apart = 16) {
    for (int v = 0; v < PANEL; v += 16, j += apart)
        for (int p = 0; p < K / 2; p += 16) {
            Floats block[16];
            __mmask16 where = first(K / 2 - p);
            for (int i = 0; i < 16; i++)
                block[i] = (Floats)_mm512_maskz_loadu_epi32(j + i < N ? where : 0, w + int64_t(j + i) * K + 2 * p);
            transpose(block);
            for (int i = 0; i < std::min(16, K / 2 - p); i++) store((float*)panel + (p + i) * PANEL + v, block[i]);
        }
}

// -- products ----------------------------------------------------------------------------------------------------------

// Adds R rows times a panel's 64 columns to sums. Word p of row r of the left factor is a[r * row + p * step].
template <int R>
inline void add_dots(int pairs, const uint32_t* a, int64_t row, int64_t step, const uint32_t* panel, __m512 (&s)[R][4]) {
    for (int p = 0; p < pairs; p++) {
        __m512bh y[4];
        for (int v = 0; v < 4; v++) y[v] = (__m512bh)_mm512_loadu_si512(panel + p * PANEL + v * 16);
        #pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            __m512bh x = (__m512bh)_mm512_set1_epi32(a[r * row + p * step]);
            for (int v = 0; v < 4; v++) s[r][v] = _mm512_dpbf16_ps(s[r][v], x, y[v]);
        }
    }
}

// The same from nothing.
template <int R>
inline void dots(int pairs, const uint32_t* a, int64_t row, int64_t step, const uint32_t* panel, __m512 (&s)[R][4]) {
    for (int r = 0; r < R; r++)
        for (int v = 0; v < 4; v++) s[r][v] = _mm512_setzero_ps();
    add_dots<R>(pairs, a, row, step, panel, s);
}

// f(first row, how many: a constant) for parts of at most TALL of the rows `from` to `to`, about equally tall.
template <class F> inline void tiles(int64_t from, int64_t to, F f) {
    for (int64_t left = ceil(to - from, TALL); left > 0; left--) {
        int tall = int(ceil(to - from, left));
        with_rows<TALL>(tall, [&](auto rows) { f(from, rows); });
        from += tall;
    }
}

}  // namespace

#endif
