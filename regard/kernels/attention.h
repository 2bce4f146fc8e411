// Dot-product attention of packed sequences, forwards and backwards: no padding, nothing gathered.

#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "small_products.h"
#include "team.h"

namespace {

// A tensor (heads, tokens, width) whose width is contiguous.
template <class T> struct View {
    T* at;
    int64_t head, row;
    T* of(int h, int64_t i) const { return at + h * head + i * row; }
    // Fetches n tokens of a head: they lie apart, and the processor does not foresee that by itself.
    void fetch(int h, int64_t i, int n, int width) const {
        for (int t = 0; t < n; t++)
            for (int d = 0; d < width; d += 64 / sizeof(T))
                __builtin_prefetch(of(h, i + t) + d, std::is_const_v<T> ? 0 : 1);
    }
};

struct Scratch {  // of one thread, grown when a longer sequence comes
    std::vector<float> held[8];
    template <class Word = float> Word* of(int which, int64_t n) {
        std::vector<float>& x = held[which];
        if (int64_t(x.size()) < n + W) x.resize(n + W);
        return (Word*)((uintptr_t(x.data()) + 63) / 64 * 64);
    }
};

// f(scratch, sequence, head, first query, queries, first key, keys) for each head of each sequence.
template <class F> void each_head(const int32_t* qs, const int32_t* ks, int B, int H, F f) {
    const int64_t tasks = int64_t(B) * H;
    const int64_t chunk = std::max<int64_t>(1, tasks / (8 * threads()));
    Queue queue;
    together(threads(), [&](Team) {
        Scratch scratch;
        queue.each(tasks, chunk, [&](int64_t task) {
            int b = int(task / H), h = int(task % H);
            f(scratch, b, h, qs[b], qs[b + 1] - qs[b], ks[b], ks[b + 1] - ks[b]);
        });
    });
}

// Scores (T, S) to weights, in place; rows are `to` apart, what lies beyond S becomes 0. A causal row i sees i + 1 keys.
void weigh(float* p, int T, int S, int to, bool causal) {
    const Ints lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int i = 0; i < T; i++) {
        float* row = p + int64_t(i) * to;
        int seen = causal && i + 1 < S ? i + 1 : S;
        auto score = [&](int j) { return pick(lanes + j < seen, load(row + j), all(-INFINITY)); };
        Floats m = score(0);
        for (int j = W; j < to; j += W) m = larger(score(j), m);
        float top = largest(m);
        Floats s = {};
        for (int j = 0; j < to; j += W) { Floats e = exponential(score(j) - top); store(row + j, e); s += e; }
        float inverse = 1.0f / sum(s);
        for (int j = 0; j < to; j += W) store(row + j, load(row + j) * inverse);
    }
}

template <class Kind, class T>
void attend(View<const T> q, View<const T> k, View<const T> v, View<T> out, const int32_t* qs, const int32_t* ks,
            int B, int H, int D, int E, bool causal) {
    using Word = typename Kind::Word;
    each_head(qs, ks, B, H, [&](Scratch& scratch, int b, int h, int64_t q0, int n, int64_t k0, int S) {
        int Dp = up(D), Ep = up(E), Sp = up(S), most = std::max(n, S);
        if (n == 0) return;
        out.fetch(h, q0, n, E);
        if (b + 1 < B) {
            q.fetch(h, qs[b + 1], qs[b + 2] - qs[b + 1], D);
            k.fetch(h, ks[b + 1], ks[b + 2] - ks[b + 1], D);
            v.fetch(h, ks[b + 1], ks[b + 2] - ks[b + 1], E);
        }
        Word* spare = scratch.of<Word>(0, int64_t(most) * std::max(Dp, Sp));
        Word* right = scratch.of<Word>(1, std::max(int64_t(Dp) * Sp, int64_t(S + 1) * Ep));
        float* P = scratch.of(2, int64_t(n) * Sp);
        float* O = scratch.of(3, int64_t(n) * Ep);
        Kind::transposed(k.of(h, k0), k.row, S, D, right, spare);
        product(n, Sp, Kind::words(D), Kind::rows(q.of(h, q0), q.row, n, D, spare), right, P);
        weigh(P, n, S, Sp, causal);
        Kind::lay(v.of(h, k0), v.row, S, E, right);
        product(n, Ep, Kind::words(S), Kind::rows(P, n, Sp, spare), right, O);
        copy_out(O, Ep, n, E, out.of(h, q0), out.row);
    });
}

// The weights are made again from queries and keys: cheaper than keeping them.
template <class Kind, class T>
void attend_back(View<const T> q, View<const T> k, View<const T> v, View<const T> g, View<T> dq, View<T> dk, View<T> dv,
                 const int32_t* qs, const int32_t* ks, int B, int H, int D, int E, bool causal) {
    using Word = typename Kind::Word;
    each_head(qs, ks, B, H, [&](Scratch& scratch, int b, int h, int64_t q0, int n, int64_t k0, int S) {
        int Dp = up(D), Ep = up(E), Sp = up(S), wide = std::max(Dp, Ep), most = std::max(n, S);
        dq.fetch(h, q0, n, D);
        dk.fetch(h, k0, S, D);
        dv.fetch(h, k0, S, E);
        if (b + 1 < B) {
            q.fetch(h, qs[b + 1], qs[b + 2] - qs[b + 1], D);
            k.fetch(h, ks[b + 1], ks[b + 2] - ks[b + 1], D);
            v.fetch(h, ks[b + 1], ks[b + 2] - ks[b + 1], E);
            g.fetch(h, qs[b + 1], qs[b + 2] - qs[b + 1], E);
        }
        Word* spare = scratch.of<Word>(0, int64_t(most + 1) * std::max(wide, Sp));
        Word* right = scratch.of<Word>(1, int64_t(up(most) + 1) * wide);
        float* P = scratch.of(2, int64_t(n) * Sp);
        float* dP = scratch.of(3, int64_t(n) * Sp);
        float* made = scratch.of(4, int64_t(most) * wide);
        Kind::transposed(k.of(h, k0), k.row, S, D, right, spare);
        product(n, Sp, Kind::words(D), Kind::rows(q.of(h, q0), q.row, n, D, spare), right, P);
        weigh(P, n, S, Sp, causal);
        Kind::lay(g.of(h, q0), g.row, n, E, right);
        product(S, Ep, Kind::words(n), Kind::columns(P, n, Sp, spare), right, made);   // dV = P^T G
        copy_out(made, Ep, S, E, dv.of(h, k0), dv.row);
        Kind::transposed(v.of(h, k0), v.row, S, E, right, spare);
        product(n, Sp, Kind::words(E), Kind::rows(g.of(h, q0), g.row, n, E, spare), right, dP);  // dP = G V^T
        for (int i = 0; i < n; i++) {                                                  // dS = P (dP - sum of P dP)
            float *p = P + int64_t(i) * Sp, *d = dP + int64_t(i) * Sp;
            Floats s = {};
            for (int j = 0; j < Sp; j += W) s += load(p + j) * load(d + j);
            float mean = sum(s);
            for (int j = 0; j < Sp; j += W) store(d + j, load(p + j) * (load(d + j) - mean));
        }
        Kind::lay(k.of(h, k0), k.row, S, D, right);
        product(n, Dp, Kind::words(S), Kind::rows(dP, n, Sp, spare), right, made);     // dQ = dS K
        copy_out(made, Dp, n, D, dq.of(h, q0), dq.row);
        Kind::lay(q.of(h, q0), q.row, n, D, right);
        product(S, Dp, Kind::words(n), Kind::columns(dP, n, Sp, spare), right, made);  // dK = dS^T Q
        copy_out(made, Dp, S, D, dk.of(h, k0), dk.row);
    });
}

// Which arithmetic: pairs where there are such products and the numbers lie in pairs.
template <class T, class F> auto of_kind(bool even, F f) {
#ifdef __AVX512BF16__
    if constexpr (std::is_same_v<T, bf16>)
        if (even) return f(Paired{});
#endif
    return f(Plain<T>{});
}

}  // namespace
