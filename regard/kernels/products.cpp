// Linear maps in bfloat16 for processors with its dot product (AVX512_BF16), forwards and backwards.
//
// A row of the input goes through all that belongs to it while it is in the cache: bias, activation and the next map
// on its way in, both gradients on its way out. Sums are float32 from the first to the last, in an order that neither
// the other rows nor (forwards) the number of threads changes. Nothing is compiled for a shape: any number of rows will do.
//
// Sizes: M rows, K inputs and N outputs of a map (both even), D width, F inner width, V tokens. Weights are (N, K).
// Every function asks for `room`; called without, it returns the bytes that it needs and does nothing else.

#ifdef __AVX512BF16__

#include <algorithm>

#include <immintrin.h>
#include <omp.h>
#include <vector>

#include "loss.h"
#include "woven.h"

namespace {

constexpr int SIDE = 48;   // columns of the left factor that are woven together when it is read transposed
constexpr int DEEP = 512;  // pairs summed before the next panel: 128 KB of it, which the second cache holds
constexpr int BLOCK = 256; // rows that a thread takes through everything at a time, an even number

inline void put(bf16* at, __m512 x, __mmask16 where) {
    _mm256_mask_storeu_epi16(at, where, (__m256i)_mm512_cvtneps_pbh(x));
}
inline __m512 widened(__m256i x) { return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16); }

// -- products ----------------------------------------------------------------------------------------------------------

// Rows x (rows, 2 pairs), `row` apart, times columns j on of B: finish(i, v, sums) for each row i and vector of columns.
template <class Finish>
void multiply(const bf16* x, int64_t row, int rows, const Woven& b, int j, Finish finish) {
    float partial[BLOCK * PANEL];
    for (int p = 0; p < b.pairs; p += DEEP) {
        int pairs = std::min(DEEP, b.pairs - p);
        const uint32_t* panel = b.panel(j) + p * PANEL;
        for (int i = 0; i < rows; i += TALL)
            with_rows<TALL>(rows - i, [&](auto tall) {
                constexpr int R = decltype(tall)::value;
                __m512 s[R][4];
                dots<R>(pairs, (const uint32_t*)(x + i * row) + p, row / 2, 1, panel, s);
                for (int r = 0; r < R; r++)
                    for (int v = 0; v < 4; v++) {
                        float* kept = partial + (i + r) * PANEL + v * 16;
                        if (p > 0) s[r][v] += _mm512_loadu_ps(kept);
                        if (p + pairs == b.pairs) finish(i + r, v, s[r][v]);
                        else _mm512_storeu_ps(kept, s[r][v]);
                    }
            });
    }
}

enum Activation { NONE, RELU };

// y (rows, N) = x B + bias (none if null), or its positive part.
void forwards(const bf16* x, int rows, const Woven& b, const bf16* bias, Activation activation, bf16* y) {
    for (int j = 0; j < b.N; j += PANEL) {
        __m512 add[4];
        for (int v = 0; v < 4; v++)
            add[v] = bias ? widened(_mm256_maskz_loadu_epi16(first(b.N - j - 16 * v), bias + j + 16 * v)) : __m512{};
        multiply(x, 2 * b.pairs, rows, b, j, [&](int i, int v, __m512 z) {
            z += add[v];
            if (activation == RELU) z = _mm512_max_ps(z, __m512{});
            bf16* at = y + int64_t(i) * b.N + j + 16 * v;
            if (v % 2 == 0) __builtin_prefetch(at + PANEL, 1);
            put(at, z, first(b.N - j - 16 * v));
        });
    }
}

// dx (rows, N) = g B; with h (rows, N), where that is positive, else 0.
void backwards(const bf16* g, int rows, const Woven& b, const bf16* h, bf16* dx) {
    for (int j = 0; j < b.N; j += PANEL)
        multiply(g, 2 * b.pairs, rows, b, j, [&](int i, int v, __m512 z) {
            int64_t at = int64_t(i) * b.N + j + 16 * v;
            __mmask16 where = first(b.N - j - 16 * v);
            if (h) {
                if (v % 2 == 0) __builtin_prefetch(h + at + PANEL);
                __m256i kept = _mm256_maskz_loadu_epi16(where, h + at);
                z = _mm512_maskz_mov_ps(_mm256_cmpgt_epi16_mask(kept, _mm256_setzero_si256()), z);
            }
            put(dx + at, z, where);
        });
}

// What a thread sums of a map's gradients: dW (N, K) += g^T x and db (N,) += g's rows. dW lies panel after panel of 64
// columns, so that what is summed together lies together.
struct Gradient {
    float *w, *b;
    uint32_t *left, *right;
    int N, K;
    bool begun = false;

    Gradient(Room& room, int N, int K) : N(N), K(K) {
        w = room.take<float>(N * ceil(K, PANEL) * PANEL);
        b = room.take<float>(N);
        left = room.take<uint32_t>(ceil(N, SIDE) * SIDE * (BLOCK / 2));
        right = room.take<uint32_t>(Woven::words(BLOCK, K));
    }

    void add(const bf16* g, const bf16* x, int rows) {
        Woven b{right, (rows + 1) / 2, K};
        // Four panels at a time: more would fall upon the same places of the cache.
        for (int j = 0; j < K; j += 4 * PANEL)
            weave_rows(x, K, rows, j, std::min(j + 4 * PANEL, int(ceil(K, PANEL)) * PANEL), b);
        weave_left(g, rows);
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

    // Weaves pairs of rows of g (rows, N), and sums them.
    void weave_left(const bf16* g, int rows) {
        int pairs = (rows + 1) / 2;
        if (!begun) std::memset(b, 0, N * sizeof(float));
        for (int i = 0; i < rows; i += 2)
            for (int j = 0; j < N; j += 16) {
                __mmask16 where = first(N - j);
                const bf16* at = g + int64_t(i) * N + j;
                __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(where, at));
                __m512i odd = _mm512_slli_epi32(
                    _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(i + 1 < rows ? where : 0, at + N)), 16);
                _mm512_storeu_si512(left + int64_t(j / SIDE * SIDE) * pairs + i / 2 * SIDE + j % SIDE, even | odd);
                __m512 sum = _mm512_maskz_loadu_ps(where, b + j) + (__m512)_mm512_slli_epi32(even, 16) + (__m512)odd;
                _mm512_mask_storeu_ps(b + j, where, sum);
            }
    }
};

// Each part its own sums; `collect` adds them all up.
struct Gradients {
    std::vector<Gradient> of;

    Gradients(Room& room, int parts, int N, int K) {
        for (int part = 0; part < parts; part++) of.emplace_back(room, N, K);
    }
    void collect(bf16* dw, bf16* db) const {
        int N = of[0].N, K = of[0].K;
        auto add = [&](auto where, __mmask16 mask, bf16* out) {
            __m512 s{};
            for (const Gradient& one : of) s += _mm512_maskz_loadu_ps(mask, where(one));
            put(out, s, mask);
        };
        #pragma omp for schedule(static)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < K; j += 16) {
                int64_t at = int64_t(j / PANEL * PANEL) * N + i * PANEL + j % PANEL;
                add([&](const Gradient& one) { return one.w + at; }, first(K - j), dw + int64_t(i) * K + j);
            }
        #pragma omp for schedule(static)
        for (int i = 0; i < (db ? N : 0); i += 16)
            add([&](const Gradient& one) { return one.b + i; }, first(N - i), db + i);
    }
};

// Each thread weaves some of the panels; all are there when it returns.
void weave_all(const bf16* w, int N, int K, bool turned, const Woven& out) {
    #pragma omp for schedule(static)
    for (int j = 0; j < (turned ? N : K); j += PANEL)
        turned ? weave_columns(w, N, K, j, out.panel(j)) : weave_rows(w, K, N, j, j + PANEL, out);
}

// How many threads share the rows, and the rows of one of them.
int parts_of(int64_t M) { return int(std::min<int64_t>(omp_get_max_threads(), ceil(M, BLOCK / 4))); }

// f(first row, rows) for each of this thread's blocks, which are of about equal size.
template <class F> void blocks(int64_t M, int part, int parts, F f) {
    int64_t from = M * part / parts, to = M * (part + 1) / parts, n = ceil(to - from, BLOCK);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = from + (to - from) * i / n;
        f(at, int(from + (to - from) * (i + 1) / n - at));
    }
}

}  // namespace

// y (M, N) = x (M, K) w^T + b
extern "C" int64_t linear(char* at, const bf16* x, const bf16* w, const bf16* b, bf16* y, int64_t M, int N, int K) {
    Room room{at};
    Woven wt{room.take<uint32_t>(Woven::words(K, N)), K / 2, N};
    if (!at) return room.used;
    #pragma omp parallel
    {
        weave_all(w, N, K, true, wt);
        #pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < M; i += BLOCK / 2)
            forwards(x + i * K, int(std::min<int64_t>(BLOCK / 2, M - i)), wt, b, NONE, y + i * N);
    }
    return 0;
}

// From y's gradient g: dx (none if null), dw, db (none if null).
extern "C" int64_t linear_back(char* at, const bf16* g, const bf16* x, const bf16* w, bf16* dx, bf16* dw, bf16* db,
                               int64_t M, int N, int K) {
    Room room{at};
    int parts = parts_of(M);
    Woven wb{room.take<uint32_t>(Woven::words(N, K)), N / 2, K};
    Gradients sums(room, parts, N, K);
    if (!at) return room.used;
    #pragma omp parallel num_threads(parts)
    {
        int part = omp_get_thread_num();
        Gradient sum = sums.of[part];
        if (dx) weave_all(w, N, K, false, wb);
        blocks(M, part, parts, [&](int64_t i, int rows) {
            if (dx) backwards(g + i * N, rows, wb, nullptr, dx + i * K);
            sum.add(g + i * N, x + i * K, rows);
        });
        #pragma omp barrier
        sums.collect(dw, db);
    }
    return 0;
}

// h (M, F) = max(0, x (M, D) w1^T + b1); y (M, D) = h w2^T + b2
extern "C" int64_t feedforward(char* at, const bf16* x, const bf16* w1, const bf16* b1, const bf16* w2, const bf16* b2,
                               bf16* h, bf16* y, int64_t M, int D, int F) {
    Room room{at};
    Woven first{room.take<uint32_t>(Woven::words(D, F)), D / 2, F}, second{room.take<uint32_t>(Woven::words(F, D)), F / 2, D};
    if (!at) return room.used;
    #pragma omp parallel
    {
        weave_all(w1, F, D, true, first);
        weave_all(w2, D, F, true, second);
        #pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < M; i += BLOCK / 2) {
            int rows = int(std::min<int64_t>(BLOCK / 2, M - i));
            forwards(x + i * D, rows, first, b1, RELU, h + i * F);
            forwards(h + i * F, rows, second, b2, NONE, y + i * D);
        }
    }
    return 0;
}

// From y's gradient g: dx and the gradients of all weights.
extern "C" int64_t feedforward_back(char* at, const bf16* g, const bf16* x, const bf16* h, const bf16* w1,
                                    const bf16* w2, bf16* dx, bf16* dw1, bf16* db1, bf16* dw2, bf16* db2, int64_t M,
                                    int D, int F) {
    Room room{at};
    int parts = parts_of(M);
    Woven first{room.take<uint32_t>(Woven::words(F, D)), F / 2, D}, second{room.take<uint32_t>(Woven::words(D, F)), D / 2, F};
    Gradients firsts(room, parts, F, D), seconds(room, parts, D, F);
    bf16* inner = room.take<bf16>(int64_t(parts) * BLOCK * F);
    if (!at) return room.used;
    #pragma omp parallel num_threads(parts)
    {
        int part = omp_get_thread_num();
        Gradient one = firsts.of[part], two = seconds.of[part];
        bf16* dh = inner + int64_t(part) * BLOCK * F;
        weave_all(w1, F, D, false, first);
        weave_all(w2, D, F, false, second);
        blocks(M, part, parts, [&](int64_t i, int rows) {
            backwards(g + i * D, rows, second, h + i * F, dh);
            two.add(g + i * D, h + i * F, rows);
            backwards(dh, rows, first, nullptr, dx + i * D);
            one.add(dh, x + i * D, rows);
        });
        #pragma omp barrier
        firsts.collect(dw1, db1);
        seconds.collect(dw2, db2);
    }
    return 0;
}

// Each token's label-smoothed loss of logits x (M, D) w^T + b, and all gradients of their sum; a target < 0 is padding.
extern "C" int64_t projected_loss(char* at, const bf16* x, const bf16* w, const bf16* b, const int64_t* targets,
                                  float smoothing, float* losses, bf16* dx, bf16* dw, bf16* db, int64_t M, int V, int D) {
    Room room{at};
    int parts = parts_of(M);
    Woven wt{room.take<uint32_t>(Woven::words(D, V)), D / 2, V}, wb{room.take<uint32_t>(Woven::words(V, D)), V / 2, D};
    Gradients sums(room, parts, V, D);
    bf16* all = room.take<bf16>(int64_t(parts) * BLOCK * V);
    float* more = room.take<float>(int64_t(parts) * ceil(V, 16) * 16);
    if (!at) return room.used;
    #pragma omp parallel num_threads(parts)
    {
        int part = omp_get_thread_num();
        Gradient sum = sums.of[part];
        bf16* logits = all + int64_t(part) * BLOCK * V;
        float* row = more + part * ceil(V, 16) * 16;
        weave_all(w, V, D, true, wt);
        weave_all(w, V, D, false, wb);
        blocks(M, part, parts, [&](int64_t i, int rows) {
            forwards(x + i * D, rows, wt, b, NONE, logits);
            for (int r = 0; r < rows; r++)
                losses[i + r] = smoothed_row(logits + int64_t(r) * V, V, targets[i + r], smoothing, row);
            backwards(logits, rows, wb, nullptr, dx + i * D);
            sum.add(logits, x + i * D, rows);
        });
        #pragma omp barrier
        sums.collect(dw, db);
    }
    return 0;
}

#endif
