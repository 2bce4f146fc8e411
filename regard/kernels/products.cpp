// Linear maps in bfloat16 for processors with its dot product (AVX512_BF16), forwards and backwards.
//
// A row of the input goes through all that belongs to it while it is in the cache: bias, activation and the next map
// on its way in, both gradients on its way out. Sums are float32 from the first to the last, in an order that neither
// the other rows nor (forwards) the number of threads changes. Nothing is compiled for a shape: any number of rows will do.
//
// Sizes: M rows, K inputs and N outputs of a map (both even), D width, F inner width, V tokens. Weights are (N, K).
// Every function asks for `room`; called without, it returns the bytes that it needs and does nothing else.

#include "team.h"

#ifdef __AVX512BF16__

#include <algorithm>
#include <array>

#include <immintrin.h>

#include "entry.h"
#include "gradients.h"
#include "interleaved.h"
#include "loss.h"

namespace {

constexpr int DEEP = 512;   // pairs summed before the next panel: 128 KB of it, which the second-level cache holds

inline __m512 widen(__m256i x) { return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16); }

// -- products ----------------------------------------------------------------------------------------------------------

// Rows x (rows, 2 pairs), `row` apart, times columns j on of B: finish(i, v, sums) for each row i and vector of columns.
template <class Finish>
void multiply(const bf16* x, int64_t row, int rows, const Interleaved& b, int j, Finish finish) {
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
void forwards(const bf16* x, int rows, const Interleaved& b, const bf16* bias, Activation activation, bf16* y) {
    for (int j = 0; j < b.N; j += PANEL) {
        __m512 add[4];
        for (int v = 0; v < 4; v++)
            add[v] = bias ? widen(_mm256_maskz_loadu_epi16(first(b.N - j - 16 * v), bias + j + 16 * v)) : __m512{};
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
void backwards(const bf16* g, int rows, const Interleaved& b, const bf16* h, bf16* dx) {
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

// Each thread interleaves some of the panels: all are there when the team has waited.
void interleave_all(Team& team, const bf16* w, int N, int K, bool transposed, const Interleaved& out) {
    team.each(ceil(transposed ? N : K, PANEL), [&](int64_t panel) {
        const int j = int(panel) * PANEL;
        transposed ? interleave_columns(w, N, K, j, out.panel(j)) : interleave_rows(w, K, N, j, j + PANEL, out);
    });
}

// How many shares the rows are cut into: as many as threads are asked for, each with enough rows to be worth it. Whichever
// threads there are then do the shares in turn.
int shares_of(int64_t M) { return int(std::clamp<int64_t>(ceil(M, BLOCK / 4), 1, threads())); }

// f(first row, rows) for each block of a share, which are of about equal size.
template <class F> void blocks(int64_t M, int share, int shares, F f) {
    int64_t from = M * share / shares, to = M * (share + 1) / shares, n = ceil(to - from, BLOCK);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = from + (to - from) * i / n;
        f(at, int(from + (to - from) * (i + 1) / n - at));
    }
}

// -- one map -----------------------------------------------------------------------------------------------------------

int64_t map(char* at, const bf16* x, const bf16* w, const bf16* b, bf16* y, int64_t M, int N, int K) {
    Workspace space{at};
    Interleaved wt{space.take<uint32_t>(Interleaved::words(K, N)), K / 2, N};
    if (!at) return space.used;
    Queue queue;
    together(threads(), [&](Team team) {
        interleave_all(team, w, N, K, true, wt);
        team.wait();
        queue.each(ceil(M, BLOCK / 2), 1, [&](int64_t part) {
            const int64_t i = part * (BLOCK / 2);
            forwards(x + i * K, int(std::min<int64_t>(BLOCK / 2, M - i)), wt, b, NONE, y + i * N);
        });
    });
    return 0;
}

int64_t map_back(char* at, const bf16* g, const bf16* x, const bf16* w, bf16* dx, bf16* dw, bf16* db, int64_t M, int N,
                 int K) {
    Workspace space{at};
    const int shares = shares_of(M);
    Interleaved wb{space.take<uint32_t>(Interleaved::words(N, K)), N / 2, K};
    Gradients sums(space, shares, N, K);
    if (!at) return space.used;
    together(shares, [&](Team team) {
        if (dx) interleave_all(team, w, N, K, false, wb);
        team.wait();
        team.each(shares, [&](int64_t share) {
            Gradient sum = sums.of[share];
            blocks(M, int(share), shares, [&](int64_t i, int rows) {
                if (dx) backwards(g + i * N, rows, wb, nullptr, dx + i * K);
                sum.add(g + i * N, x + i * K, rows);
            });
            sum.finish();
        });
        team.wait();
        sums.collect(team, dw, db);
    });
    return 0;
}

// -- two maps with an activation between them ----------------------------------------------------------------------------

int64_t two_maps(char* at, const bf16* x, const bf16* w1, const bf16* b1, const bf16* w2, const bf16* b2, bf16* h, bf16* y,
                 int64_t M, int D, int F) {
    Workspace space{at};
    Interleaved first{space.take<uint32_t>(Interleaved::words(D, F)), D / 2, F};
    Interleaved second{space.take<uint32_t>(Interleaved::words(F, D)), F / 2, D};
    if (!at) return space.used;
    Queue queue;
    together(threads(), [&](Team team) {
        interleave_all(team, w1, F, D, true, first);
        interleave_all(team, w2, D, F, true, second);
        team.wait();
        queue.each(ceil(M, BLOCK / 2), 1, [&](int64_t part) {
            const int64_t i = part * (BLOCK / 2);
            const int rows = int(std::min<int64_t>(BLOCK / 2, M - i));
            forwards(x + i * D, rows, first, b1, RELU, h + i * F);
            forwards(h + i * F, rows, second, b2, NONE, y + i * D);
        });
    });
    return 0;
}

int64_t two_maps_back(char* at, const bf16* g, const bf16* x, const bf16* h, const bf16* w1, const bf16* w2, bf16* dx,
                      bf16* dw1, bf16* db1, bf16* dw2, bf16* db2, int64_t M, int D, int F) {
    Workspace space{at};
    const int shares = shares_of(M);
    Interleaved first{space.take<uint32_t>(Interleaved::words(F, D)), F / 2, D};
    Interleaved second{space.take<uint32_t>(Interleaved::words(D, F)), D / 2, F};
    Gradients firsts(space, shares, F, D), seconds(space, shares, D, F);
    bf16* inner = space.take<bf16>(int64_t(shares) * BLOCK * F);
    if (!at) return space.used;
    together(shares, [&](Team team) {
        interleave_all(team, w1, F, D, false, first);
        interleave_all(team, w2, D, F, false, second);
        team.wait();
        team.each(shares, [&](int64_t share) {
            Gradient one = firsts.of[share], two = seconds.of[share];
            bf16* dh = inner + share * BLOCK * F;
            blocks(M, int(share), shares, [&](int64_t i, int rows) {
                backwards(g + i * D, rows, second, h + i * F, dh);
                two.add(g + i * D, h + i * F, rows);
                backwards(dh, rows, first, nullptr, dx + i * D);
                one.add(dh, x + i * D, rows);
            });
            one.finish(), two.finish();
        });
        team.wait();
        firsts.collect(team, dw1, db1);
        seconds.collect(team, dw2, db2);
    });
    return 0;
}

// -- the loss behind a map -----------------------------------------------------------------------------------------------

// Rows whose logits stand in memory at a time: whole blocks, enough for all threads, of at most 64 MB where it can be.
int64_t rows_at_once(int64_t M, int V) {
    return BLOCK * std::max<int64_t>(std::min<int64_t>({ceil(M, BLOCK), 2 * threads(), (1 << 25) / V / BLOCK}), 1);
}

// Of a large vocabulary the gradient is much memory, so there is one, whose stripes the threads take in turn, however many
// they are. Its sums are taken block of rows after block, so they do not depend on the number of threads either.
int64_t loss_of_map(char* at, const bf16* x, const bf16* w, const bf16* b, const int64_t* targets, float smoothing,
                    float* losses, bf16* dx, bf16* dw, bf16* db, int64_t M, int V, int D) {
    Workspace space{at};
    const int64_t most = threads(), chunk = rows_at_once(M, V), part = std::clamp<int64_t>(chunk / (2 * most), 16, BLOCK);
    const int stripe = int(std::clamp<int64_t>(V / (4 * most) / SIDE, 1, 8)) * SIDE;
    const int64_t width = ceil(D, PANEL) * PANEL, words = Interleaved::words(BLOCK, D);
    Interleaved wt{space.take<uint32_t>(Interleaved::words(D, V)), D / 2, V};
    Interleaved wb{space.take<uint32_t>(Interleaved::words(V, D)), V / 2, D};
    float* sums = space.take<float>((V + 16) * (width + 1));
    bf16* logits = space.take<bf16>(chunk * V);
    uint32_t* right = space.take<uint32_t>(chunk / BLOCK * words);
    uint32_t* left = space.take<uint32_t>(most * Gradient::words(stripe));
    float* more = space.take<float>(most * ceil(V, 16) * 16);
    if (!at) return space.used;
    check_targets(targets, M, V);
    std::vector<Queue> queues(2 * ceil(M, chunk) + 2);
    together(int(most), [&](Team team) {
        interleave_all(team, w, V, D, true, wt);
        interleave_all(team, w, V, D, false, wb);
        team.wait();
        Queue* queue = queues.data();
        for (int64_t from = 0; from == 0 || from < M; from += chunk) {
            const int64_t rows = std::min(chunk, M - from), blocks = ceil(rows, BLOCK);
            auto rows_of = [&](int64_t i, int64_t size) { return int(std::min(size, rows - i * size)); };
            queue++->each(ceil(rows, part), 1, [&](int64_t i) {
                const int64_t begin = from + i * part;
                const int n = rows_of(i, part);
                bf16* z = logits + i * part * V;
                forwards(x + begin * D, n, wt, b, NONE, z);
                for (int r = 0; r < n; r++)
                    losses[begin + r] = smoothed_row(z + int64_t(r) * V, V, targets[begin + r], smoothing,
                                                     more + team.id * ceil(V, 16) * 16);
                backwards(z, n, wb, nullptr, dx + begin * D);
            });
            team.each(blocks, [&](int64_t i) {
                interleave_right(x + (from + i * BLOCK) * D, rows_of(i, BLOCK), D, right + i * words);
            });
            team.wait();
            queue++->each(ceil(V, stripe), 1, [&](int64_t i) {
                const int64_t begin = i * stripe, n = std::min<int64_t>(stripe, V - begin);
                float* sum = sums + begin * (width + 1);
                Gradient one{sum, sum + n * width, left + team.id * Gradient::words(stripe), right, int(n), D, from > 0};
                for (int64_t block = 0; block < blocks; block++, one.right += words)
                    one.add(logits + block * BLOCK * V + begin, V, rows_of(block, BLOCK));
                if (from + chunk < M) return;
                one.finish();
                collect(std::array{one}, 0, one.N, dw + begin * D, db ? db + begin : nullptr);
            });
            team.wait();
        }
    });
    return 0;
}

}  // namespace

// y (M, N) = x (M, K) w^T + b
ENTRY(int64_t, linear)(char* at, const bf16* x, const bf16* w, const bf16* b, bf16* y, int64_t M, int N, int K) {
    return guarded([&] { return map(at, x, w, b, y, M, N, K); });
}

// From y's gradient g: dx (none if null), dw, db (none if null).
ENTRY(int64_t, linear_back)(char* at, const bf16* g, const bf16* x, const bf16* w, bf16* dx, bf16* dw, bf16* db, int64_t M, int N,
                    int K) {
    return guarded([&] { return map_back(at, g, x, w, dx, dw, db, M, N, K); });
}

// h (M, F) = max(0, x (M, D) w1^T + b1); y (M, D) = h w2^T + b2
ENTRY(int64_t, feedforward)(char* at, const bf16* x, const bf16* w1, const bf16* b1, const bf16* w2, const bf16* b2, bf16* h,
                    bf16* y, int64_t M, int D, int F) {
    return guarded([&] { return two_maps(at, x, w1, b1, w2, b2, h, y, M, D, F); });
}

// From y's gradient g: dx and the gradients of all weights.
ENTRY(int64_t, feedforward_back)(char* at, const bf16* g, const bf16* x, const bf16* h, const bf16* w1, const bf16* w2, bf16* dx,
                         bf16* dw1, bf16* db1, bf16* dw2, bf16* db2, int64_t M, int D, int F) {
    return guarded([&] { return two_maps_back(at, g, x, h, w1, w2, dx, dw1, db1, dw2, db2, M, D, F); });
}

// Each token's label-smoothed loss of logits x (M, D) w^T + b, and all gradients of their sum; a target < 0 is padding.
ENTRY(int64_t, projected_loss)(char* at, const bf16* x, const bf16* w, const bf16* b, const int64_t* targets, float smoothing,
                       float* losses, bf16* dx, bf16* dw, bf16* db, int64_t M, int V, int D) {
    return guarded([&] { return loss_of_map(at, x, w, b, targets, smoothing, losses, dx, dw, db, M, V, D); });
}

#endif
