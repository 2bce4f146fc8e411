// The gradient of a map's weights in bfloat16: the product of two matrices that are read transposed, summed in float32.

#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "interleaved.h"
#include "team.h"

#ifdef __AVX512BF16__

namespace {

constexpr int SIDE = 48;    // columns of the left factor that are interleaved together when it is read transposed
constexpr int BLOCK = 256;  // rows that a thread takes through everything at a time, an even number

inline void put(bf16* at, __m512 x, __mmask16 where) {
    _mm256_mask_storeu_epi16(at, where, (__m256i)_mm512_cvtneps_pbh(x));
}

// Panels of rows of x (rows, K), as the right factor of a gradient.
void interleave_right(const bf16* x, int rows, int K, uint32_t* right) {
    Interleaved b{right, (rows + 1) / 2, K};
    // Four panels at a time: more would fall upon the same places of the cache.
    for (int j = 0; j < K; j += 4 * PANEL)
        interleave_rows(x, K, rows, j, std::min(j + 4 * PANEL, int(ceil(K, PANEL)) * PANEL), b);
}

// Sums of a map's gradients: dW (N, K) += g^T x and db (N,) += g's rows. dW lies panel after panel of 64 columns, so that
// what is summed together lies together.
struct Gradient {
    float *w, *b;
    uint32_t *left, *right;
    int N, K;
    bool begun = false;

    static int64_t words(int N) { return ceil(N, SIDE) * SIDE * (BLOCK / 2); }  // of g, interleaved

    void add(const bf16* g, const bf16* x, int rows) {
        interleave_right(x, rows, K, right);
        add(g, N, rows);
    }

    // With `right` as it is; rows of g are `row` apart.
    void add(const bf16* g, int64_t row, int rows) {
        Interleaved b{right, (rows + 1) / 2, K};
        interleave_left(g, row, rows);
        for (int j = 0; j < K; j += PANEL)
            for (int i = 0; i < N;) {
                int tall = std::min(std::min(TALL, N - i), SIDE - i % SIDE);
                with_rows<TALL>(tall, [&](auto rows) {
                    constexpr int R = decltype(rows)::value;
                    __m512 s[R][4];
                    float* out = w + int64_t(j) * N + i * PANEL;
                    for (int v = 0; v < R * PANEL; v += 16) __builtin_prefetch(out + v, 1);
                    dots<R>(b.pairs, left + int64_t(i / SIDE * SIDE) * b.pairs + i % SIDE, 1, SIDE, b.panel(j), s);
                    for (int r = 0; r < R; r++)
                        for (int v = 0; v < 4; v++) {
                            float* at = out + r * PANEL + 16 * v;
                            if (begun) s[r][v] += _mm512_loadu_ps(at);
                            _mm512_storeu_ps(at, s[r][v]);
                        }
                });
                i += tall;
            }
        begun = true;
    }

    // Of no rows, the sums are zeros.
    void finish() {
        if (begun) return;
        std::memset(w, 0, N * ceil(K, PANEL) * PANEL * sizeof(float));
        std::memset(b, 0, N * sizeof(float));
    }

    // Interleaves pairs of rows of g (rows, N), and sums them.
    void interleave_left(const bf16* g, int64_t row, int rows) {
        int pairs = (rows + 1) / 2;
        if (!begun) std::memset(b, 0, N * sizeof(float));
        for (int i = 0; i < rows; i += 2)
            for (int j = 0; j < N; j += 16) {
                __mmask16 where = first(N - j);
                const bf16* at = g + i * row + j;
                __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(where, at));
                __m512i odd = _mm512_slli_epi32(
                    _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(i + 1 < rows ? where : 0, at + row)), 16);
                _mm512_storeu_si512(left + int64_t(j / SIDE * SIDE) * pairs + i / 2 * SIDE + j % SIDE, even | odd);
                __m512 sum = _mm512_maskz_loadu_ps(where, b + j) + (__m512)_mm512_slli_epi32(even, 16) + (__m512)odd;
                _mm512_mask_storeu_ps(b + j, where, sum);
            }
    }
};

// Adds up sums of one gradient, in their order: rows `from` to `to` of dw (N, K), and all of db unless it is null.
template <class Sums> void collect(const Sums& of, int64_t from, int64_t to, bf16* dw, bf16* db) {
    const int N = of.begin()->N, K = of.begin()->K;
    auto add = [&](auto where, __mmask16 mask, bf16* out) {
        __m512 s{};
        for (const Gradient& one : of) s += _mm512_maskz_loadu_ps(mask, where(one));
        put(out, s, mask);
    };
    for (int64_t i = from; i < to; i++)
        for (int j = 0; j < K; j += 16) {
            int64_t at = int64_t(j / PANEL * PANEL) * N + i * PANEL + j % PANEL;
            add([&](const Gradient& one) { return one.w + at; }, first(K - j), dw + i * K + j);
        }
    for (int i = 0; i < (db ? N : 0); i += 16) add([&](const Gradient& one) { return one.b + i; }, first(N - i), db + i);
}

// Each share of the rows has its own sums.
struct Gradients {
    std::vector<Gradient> of;

    Gradients(Workspace& space, int shares, int N, int K) {
        for (int share = 0; share < shares; share++) {
            float* w = space.take<float>(N * ceil(K, PANEL) * PANEL);
            float* b = space.take<float>(N);
            uint32_t* left = space.take<uint32_t>(Gradient::words(N));
            of.push_back({w, b, left, space.take<uint32_t>(Interleaved::words(BLOCK, K)), N, K});
        }
    }
    void collect(Team& team, bf16* dw, bf16* db) const {
        auto [from, to] = team.share(int64_t(of[0].N));
        ::collect(of, from, to, dw, team.id == 0 ? db : nullptr);
    }
};

}  // namespace

#endif
