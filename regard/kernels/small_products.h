// Products of the small matrices that attention is made of, one head of one sequence at a time.

#pragma once

#include "vectors.h"

namespace {

// A word is what is multiplied at a time: a float, or two numbers in bfloat16 that are summed together.
inline void add_product(Floats& s, float x, Floats y) { s += x * y; }
inline Floats load(const uint32_t* p) { return load((const float*)p); }
#ifdef __AVX512BF16__
inline void add_product(Floats& s, uint32_t x, Floats y) {
    s = (Floats)_mm512_dpbf16_ps((__m512)s, (__m512bh)_mm512_set1_epi32(x), (__m512bh)y);
}
#endif

// C (M, N) = A (M, K) B (K, N). A's word (i, k) is a[i * ai + k * ak], so A may be read transposed. N is a multiple of 16;
// rows of B and C are N apart.
template <class Word> struct Left { const Word* at; int64_t row, step; };

template <int R, int V, class Word> inline void tile(int K, Left<Word> a, const Word* b, float* c, int N) {
    Floats s[R][V] = {};
    for (int k = 0; k < K; k++) {
        Floats y[V];
        for (int v = 0; v < V; v++) y[v] = load(b + int64_t(k) * N + v * W);
        #pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            Word x = a.at[r * a.row + k * a.step];
            for (int v = 0; v < V; v++) add_product(s[r][v], x, y[v]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) store(c + int64_t(r) * N + v * W, s[r][v]);
}

// Columns in V vectors, rows in as few tiles of at most R as there can be, of about equal height.
template <int R, int V, class Word> void rows(int M, int K, Left<Word> a, const Word* b, float* c, int N) {
    for (int i = 0, tiles = (M + R - 1) / R; i < M; tiles--) {
        int tall = (M - i + tiles - 1) / tiles;
        with_rows<R>(tall, [&](auto n) {
            tile<decltype(n)::value, V>(K, Left<Word>{a.at + i * a.row, a.row, a.step}, b, c + int64_t(i) * N, N);
        });
        i += tall;
    }
}

template <class Word> void product(int M, int N, int K, Left<Word> a, const Word* b, float* c) {
    int j = 0;
    for (; j + 4 * W <= N; j += 4 * W) rows<6, 4>(M, K, a, b + j, c + j, N);
    for (; j + 2 * W <= N; j += 2 * W) rows<10, 2>(M, K, a, b + j, c + j, N);
    for (; j < N; j += W) rows<14, 1>(M, K, a, b + j, c + j, N);
}

inline int up(int n) { return (n + W - 1) / W * W; }

// A row-strided matrix (n, width) as float32 rows `to` apart, or its transpose (width, n) filled up with zeros.
template <class T> void copy_in(const T* x, int64_t row, int n, int width, float* out, int to) {
    for (int i = 0; i < n; i++) {
        int d = 0;
        for (; d + W <= width; d += W) store(out + int64_t(i) * to + d, load(x + i * row + d));
        for (; d < width; d++) out[int64_t(i) * to + d] = load1(x + i * row + d);
        for (; d < to; d++) out[int64_t(i) * to + d] = 0;
    }
}
// x (n, from), from a multiple of 16, to out (from, to), to = n filled up to a multiple of 16 with zeros.
inline void transpose(const float* x, int n, int from, float* out, int to) {
    for (int i = 0; i < to; i += W)
        for (int d = 0; d < from; d += W) {
            Floats block[W];
            for (int r = 0; r < W; r++) block[r] = i + r < n ? load(x + int64_t(i + r) * from + d) : Floats{};
            transpose(block);
            for (int r = 0; r < W; r++) store(out + int64_t(d + r) * to + i, block[r]);
        }
}
template <class T> void copy_out(const float* x, int from, int n, int width, T* out, int64_t row) {
    for (int i = 0; i < n; i++) {
        int d = 0;
        for (; d + W <= width; d += W) store(out + i * row + d, load(x + int64_t(i) * from + d));
        for (; d < width; d++) store1(out + i * row + d, x[int64_t(i) * from + d]);
    }
}

// -- how matrices are laid out for a product ----------------------------------------------------------------------------

// In float32: every number is a word.
template <class T> struct Plain {
    using Word = float;
    static int words(int n) { return n; }

    // A row-strided matrix (n, width) as the left factor.
    static Left<Word> rows(const T* x, int64_t row, int n, int width, Word* space) {
        copy_in(x, row, n, width, space, up(width));
        return {space, up(width), 1};
    }
    // As the right factor: (n, width filled up).
    static void lay(const T* x, int64_t row, int n, int width, Word* out) { copy_in(x, row, n, width, out, up(width)); }
    // Its transpose as the right factor: (width, n filled up).
    static void transposed(const T* x, int64_t row, int n, int width, Word* out, Word* space) {
        copy_in(x, row, n, width, space, up(width));
        transpose(space, n, up(width), out, up(n));
    }
    // float32 p (n, S), S a multiple of 16, as the left factor, and its transpose as that.
    static Left<Word> rows(const float* p, int n, int S, Word* space) { return {p, S, 1}; }
    static Left<Word> columns(const float* p, int n, int S, Word* space) { return {p, 1, S}; }
};

#ifdef __AVX512BF16__
// In bfloat16: two numbers that are summed together are a word. Widths are even.
struct Paired {
    using Word = uint32_t;
    static int words(int n) { return (n + 1) / 2; }

    static Left<Word> rows(const bf16* x, int64_t row, int n, int width, Word* space) { return {(const Word*)x, row / 2, 1}; }
    static void lay(const bf16* x, int64_t row, int n, int width, Word* out) {
        for (int i = 0; i < n; i += 2)
            for (int d = 0; d < width; d += W) {
                __mmask16 where = first(width - d);
                const bf16* at = x + i * row + d;
                __m256i even = _mm256_maskz_loadu_epi16(where, at);
                __m256i odd = _mm256_maskz_loadu_epi16(i + 1 < n ? where : 0, at + row);
                _mm512_storeu_si512(out + int64_t(i / 2) * up(width) + d, paired(even, odd));
            }
    }
    static void transposed(const bf16* x, int64_t row, int n, int width, Word* out, Word* space) {
        for (int i = 0; i < n; i += W)
            for (int d = 0; d < width / 2; d += W) {
                Floats block[W];
                for (int r = 0; r < W; r++)
                    block[r] = (Floats)_mm512_maskz_loadu_epi32(i + r < n ? first(width / 2 - d) : 0, x + (i + r) * row + 2 * d);
                transpose(block);
                for (int r = 0; r < W && d + r < width / 2; r++) store((float*)out + int64_t(d + r) * up(n) + i, block[r]);
            }
    }
    static Left<Word> rows(const float* p, int n, int S, Word* space) {
        for (int64_t i = 0; i < int64_t(n) * S; i += W) store((bf16*)space + i, load(p + i));
        return {space, S / 2, 1};
    }
    static Left<Word> columns(const float* p, int n, int S, Word* space) {
        for (int i = 0; i < n; i += 2)
            for (int j = 0; j < S; j += W) {
                const float* at = p + int64_t(i) * S + j;
                __m256i odd = i + 1 < n ? rounded(load(at + S)) : __m256i{};
                _mm512_storeu_si512(space + int64_t(i / 2) * S + j, paired(rounded(load(at)), odd));
            }
        return {space, 1, S};
    }
};
#endif

}  // namespace
