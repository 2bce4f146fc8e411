// The training step's parts that are not matrix products, each in one pass over memory, for float32 and bfloat16.
//
// Plain C functions over raw pointers: no PyTorch header is needed, so that building takes seconds. They are held equal
// to their references in PyTorch by tests. Products and sums are float32 inside, whatever the type outside.

#include <algorithm>
#include <type_traits>
#include <vector>

#include <omp.h>

#include "loss.h"
#include "vectors.h"

namespace {

// -- products of small matrices ---------------------------------------------------------------------------------------

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

int up(int n) { return (n + W - 1) / W * W; }

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
void transpose(const float* x, int n, int from, float* out, int to) {
    for (int i = 0; i < to; i += W)
        for (int d = 0; d < from; d += W) {
            Floats block[W];
            for (int r = 0; r < W; r++) block[r] = i + r < n ? load(x + int64_t(i + r) * from + d) : Floats{};
            turn(block);
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
    static Left<Word> rows(const T* x, int64_t row, int n, int width, Word* room) {
        copy_in(x, row, n, width, room, up(width));
        return {room, up(width), 1};
    }
    // As the right factor: (n, width filled up).
    static void lay(const T* x, int64_t row, int n, int width, Word* out) { copy_in(x, row, n, width, out, up(width)); }
    // Its transpose as the right factor: (width, n filled up).
    static void turned(const T* x, int64_t row, int n, int width, Word* out, Word* room) {
        copy_in(x, row, n, width, room, up(width));
        transpose(room, n, up(width), out, up(n));
    }
    // float32 p (n, S), S a multiple of 16, as the left factor, and its transpose as that.
    static Left<Word> rows(const float* p, int n, int S, Word* room) { return {p, S, 1}; }
    static Left<Word> columns(const float* p, int n, int S, Word* room) { return {p, 1, S}; }
};

#ifdef __AVX512BF16__
// In bfloat16: two numbers that are summed together are a word. Widths are even.
struct Paired {
    using Word = uint32_t;
    static int words(int n) { return (n + 1) / 2; }

    static Left<Word> rows(const bf16* x, int64_t row, int n, int width, Word* room) { return {(const Word*)x, row / 2, 1}; }
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
    static void turned(const bf16* x, int64_t row, int n, int width, Word* out, Word* room) {
        for (int i = 0; i < n; i += W)
            for (int d = 0; d < width / 2; d += W) {
                Floats block[W];
                for (int r = 0; r < W; r++)
                    block[r] = (Floats)_mm512_maskz_loadu_epi32(i + r < n ? first(width / 2 - d) : 0, x + (i + r) * row + 2 * d);
                turn(block);
                for (int r = 0; r < W && d + r < width / 2; r++) store((float*)out + int64_t(d + r) * up(n) + i, block[r]);
            }
    }
    static Left<Word> rows(const float* p, int n, int S, Word* room) {
        for (int i = 0; i < n * S; i += W) store((bf16*)room + i, load(p + i));
        return {room, S / 2, 1};
    }
    static Left<Word> columns(const float* p, int n, int S, Word* room) {
        for (int i = 0; i < n; i += 2)
            for (int j = 0; j < S; j += W) {
                const float* at = p + int64_t(i) * S + j;
                __m256i odd = i + 1 < n ? rounded(load(at + S)) : __m256i{};
                _mm512_storeu_si512(room + int64_t(i / 2) * S + j, paired(rounded(load(at)), odd));
            }
        return {room, 1, S};
    }
};
#endif

// -- attention ---------------------------------------------------------------------------------------------------------

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

// f(sequence, head, first query, queries, first key, keys) for each head of each sequence.
template <class F> void each_head(const int32_t* qs, const int32_t* ks, int B, int H, F f) {
    int chunk = std::max(1, B * H / (8 * omp_get_num_threads()));
    #pragma omp for schedule(dynamic, chunk)
    for (int task = 0; task < B * H; task++) {
        int b = task / H;
        f(b, task % H, qs[b], qs[b + 1] - qs[b], ks[b], ks[b + 1] - ks[b]);
    }
}

struct Room {  // scratch of one thread, grown when a longer sequence comes
    std::vector<float> held[8];
    template <class Word = float> Word* of(int which, int64_t n) {
        std::vector<float>& x = held[which];
        if (int64_t(x.size()) < n + W) x.resize(n + W);
        return (Word*)((uintptr_t(x.data()) + 63) / 64 * 64);
    }
};

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
    #pragma omp parallel
    {
        Room room;
        each_head(qs, ks, B, H, [&](int b, int h, int64_t q0, int n, int64_t k0, int S) {
            int Dp = up(D), Ep = up(E), Sp = up(S), most = std::max(n, S);
            if (n == 0) return;
            out.fetch(h, q0, n, E);
            if (b + 1 < B) {
                q.fetch(h, qs[b + 1], qs[b + 2] - qs[b + 1], D);
                k.fetch(h, ks[b + 1], ks[b + 2] - ks[b + 1], D);
                v.fetch(h, ks[b + 1], ks[b + 2] - ks[b + 1], E);
            }
            Word* spare = room.of<Word>(0, int64_t(most) * std::max(Dp, Sp));
            Word* right = room.of<Word>(1, std::max(int64_t(Dp) * Sp, int64_t(S + 1) * Ep));
            float* P = room.of(2, int64_t(n) * Sp);
            float* O = room.of(3, int64_t(n) * Ep);
            Kind::turned(k.of(h, k0), k.row, S, D, right, spare);
            product(n, Sp, Kind::words(D), Kind::rows(q.of(h, q0), q.row, n, D, spare), right, P);
            weigh(P, n, S, Sp, causal);
            Kind::lay(v.of(h, k0), v.row, S, E, right);
            product(n, Ep, Kind::words(S), Kind::rows(P, n, Sp, spare), right, O);
            copy_out(O, Ep, n, E, out.of(h, q0), out.row);
        });
    }
}

// The weights are made again from queries and keys: cheaper than keeping them.
template <class Kind, class T>
void attend_back(View<const T> q, View<const T> k, View<const T> v, View<const T> g, View<T> dq, View<T> dk, View<T> dv,
                 const int32_t* qs, const int32_t* ks, int B, int H, int D, int E, bool causal) {
    using Word = typename Kind::Word;
    #pragma omp parallel
    {
        Room room;
        each_head(qs, ks, B, H, [&](int b, int h, int64_t q0, int n, int64_t k0, int S) {
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
            Word* spare = room.of<Word>(0, int64_t(most + 1) * std::max(wide, Sp));
            Word* right = room.of<Word>(1, int64_t(up(most) + 1) * wide);
            float* P = room.of(2, int64_t(n) * Sp);
            float* dP = room.of(3, int64_t(n) * Sp);
            float* made = room.of(4, int64_t(most) * wide);
            Kind::turned(k.of(h, k0), k.row, S, D, right, spare);
            product(n, Sp, Kind::words(D), Kind::rows(q.of(h, q0), q.row, n, D, spare), right, P);
            weigh(P, n, S, Sp, causal);
            Kind::lay(g.of(h, q0), g.row, n, E, right);
            product(S, Ep, Kind::words(n), Kind::columns(P, n, Sp, spare), right, made);   // dV = P^T G
            copy_out(made, Ep, S, E, dv.of(h, k0), dv.row);
            Kind::turned(v.of(h, k0), v.row, S, E, right, spare);
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
}

// Which arithmetic: pairs where there are such products and the numbers lie in pairs.
template <class T, class F> void of_kind(bool even, F f) {
#ifdef __AVX512BF16__
    if constexpr (std::is_same_v<T, bf16>)
        if (even) return f(Paired{});
#endif
    f(Plain<T>{});
}

// -- label-smoothed cross-entropy --------------------------------------------------------------------------------------

// Logits (n, V) become the gradient of the loss, in place; each row's loss goes to `losses`. A target < 0 is padding.
template <class T>
void smoothed(T* logits, int64_t n, int64_t V, const int64_t* targets, float smoothing, float* losses) {
    #pragma omp parallel
    {
        std::vector<float> room(V);
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < n; i++) losses[i] = smoothed_row(logits + i * V, V, targets[i], smoothing, room.data());
    }
}

// -- dropout and residual ----------------------------------------------------------------------------------------------

// 32 random bits an element: a hash of its place under a seed (the finaliser of MurmurHash3, twice).
inline Words hash(Words x, uint32_t seed) {
    x ^= seed;
    x ^= x >> 16; x *= 0x85ebca6bu; x ^= x >> 13; x *= 0xc2b2ae35u; x ^= x >> 16;
    return x;
}

// Which elements stay: each is dropped with chance `dropped` / 2^32.
struct Drop {
    uint32_t dropped;
    float scale;
    uint32_t seed, other;

    Ints kept(int64_t i) const {  // of the 16 from place i on
        const Words steps = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        return (Ints)(hash(hash(steps + uint32_t(i), seed), other ^ uint32_t(uint64_t(i) >> 32)) >= dropped);
    }
    Floats operator()(int64_t i, Floats y) const { return pick(kept(i), y * scale, all(0.0f)); }
};

// out = x + y, y's elements dropped or scaled; without x, only the second part.
template <class T> void drop_add(const T* x, const T* y, T* out, int64_t n, Drop drop) {
    #pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < (n + 1023) / 1024; block++) {
        int64_t end = block * 1024 + 1024 < n ? block * 1024 + 1024 : n;
        for (int64_t i = block * 1024; i < end; i += W) {
            if (i + W <= end) {
                Floats z = drop(i, load(y + i));
                store(out + i, x ? load(x + i) + z : z);
            } else
                for (int64_t j = i; j < end; j++) {
                    float z = drop.kept(i)[j - i] ? load1(y + j) * drop.scale : 0.0f;
                    store1(out + j, x ? load1(x + j) + z : z);
                }
        }
    }
}

// -- layer norm --------------------------------------------------------------------------------------------------------

// Rows x (n, D), D a multiple of 16, normalised, times gain, plus bias; each row's mean and 1 / deviation are kept. With
// y, x first gets y added, dropped: `sum` (n, D).
template <class T>
void norm(const T* x, const T* y, const T* gain, const T* bias, T* sum_of, T* out, float* kept, int64_t n, int D,
          float epsilon, Drop drop) {
    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const T* row = x + i * D;
        if (y) {
            for (int d = 0; d < D; d += W)
                store(sum_of + i * D + d, load(row + d) + drop(i * D + d, load(y + i * D + d)));
            row = sum_of + i * D;
        }
        Floats s = {}, t = {};
        for (int d = 0; d < D; d += W) s += load(row + d);
        float mean = sum(s) / D;
        for (int d = 0; d < D; d += W) { Floats c = load(row + d) - mean; t += c * c; }
        float inverse = 1 / std::sqrt(sum(t) / D + epsilon);
        for (int d = 0; d < D; d += W)
            store(out + i * D + d, (load(row + d) - mean) * inverse * load(gain + d) + load(bias + d));
        kept[2 * i] = mean;
        kept[2 * i + 1] = inverse;
    }
}

// partial (threads, 2, D) receives each thread's share of the gradients of gain and bias; dy, if there is one, that of
// what was dropped and added.
template <class T>
void norm_back(const T* x, const T* gain, const T* g, const float* kept, T* dx, T* dy, float* partial, int threads,
               int64_t n, int D, Drop drop) {
    #pragma omp parallel for schedule(static) num_threads(threads)
    for (int share = 0; share < threads; share++) {
        float *dgain = partial + int64_t(share) * 2 * D, *dbias = dgain + D;
        std::memset(dgain, 0, 2 * D * sizeof(float));
        for (int64_t i = n * share / threads; i < n * (share + 1) / threads; i++) {
            float mean = kept[2 * i], inverse = kept[2 * i + 1];
            Floats s = {}, t = {};
            for (int d = 0; d < D; d += W) {
                Floats z = (load(x + i * D + d) - mean) * inverse, y = load(g + i * D + d), w = y * load(gain + d);
                s += w; t += w * z;
                store(dgain + d, load(dgain + d) + y * z);
                store(dbias + d, load(dbias + d) + y);
            }
            float a = sum(s) / D, b = sum(t) / D;
            for (int d = 0; d < D; d += W) {
                Floats z = (load(x + i * D + d) - mean) * inverse;
                store(dx + i * D + d, (load(g + i * D + d) * load(gain + d) - a - z * b) * inverse);
                if (dy) store(dy + i * D + d, drop(i * D + d, load(dx + i * D + d)));
            }
        }
    }
}

}  // namespace

#define FOR(T, NAME)                                                                                                    \
    extern "C" void attend_##NAME(const T* q, int64_t qh, int64_t qr, const T* k, int64_t kh, int64_t kr, const T* v,   \
                                  int64_t vh, int64_t vr, T* out, int64_t oh, int64_t orow, const int32_t* qs,          \
                                  const int32_t* ks, int B, int H, int D, int E, int causal) {                          \
        of_kind<T>(D % 2 == 0 && E % 2 == 0, [&](auto kind) {                                                           \
            attend<decltype(kind), T>({q, qh, qr}, {k, kh, kr}, {v, vh, vr}, {out, oh, orow}, qs, ks, B, H, D, E,       \
                                      causal);                                                                          \
        });                                                                                                             \
    }                                                                                                                   \
    extern "C" void attend_back_##NAME(const T* q, int64_t qh, int64_t qr, const T* k, int64_t kh, int64_t kr,          \
                                       const T* v, int64_t vh, int64_t vr, const T* g, int64_t gh, int64_t gr, T* dq,   \
                                       int64_t dqh, int64_t dqr, T* dk, int64_t dkh, int64_t dkr, T* dv, int64_t dvh,   \
                                       int64_t dvr, const int32_t* qs, const int32_t* ks, int B, int H, int D, int E,   \
                                       int causal) {                                                                    \
        of_kind<T>(D % 2 == 0 && E % 2 == 0, [&](auto kind) {                                                           \
            attend_back<decltype(kind), T>({q, qh, qr}, {k, kh, kr}, {v, vh, vr}, {g, gh, gr}, {dq, dqh, dqr},          \
                                           {dk, dkh, dkr}, {dv, dvh, dvr}, qs, ks, B, H, D, E, causal);                 \
        });                                                                                                             \
    }                                                                                                                   \
    extern "C" void smoothed_##NAME(T* x, int64_t n, int64_t V, const int64_t* y, float smoothing, float* losses) {     \
        smoothed<T>(x, n, V, y, smoothing, losses);                                                                     \
    }                                                                                                                   \
    extern "C" void drop_add_##NAME(const T* x, const T* y, T* out, int64_t n, uint32_t dropped, float scale,           \
                                    uint32_t seed, uint32_t other) {                                                    \
        drop_add<T>(x, y, out, n, {dropped, scale, seed, other});                                                       \
    }                                                                                                                   \
    extern "C" void norm_##NAME(const T* x, const T* y, const T* gain, const T* bias, T* sum, T* out, float* kept,      \
                                int64_t n, int D, float epsilon, uint32_t dropped, float scale, uint32_t seed,          \
                                uint32_t other) {                                                                       \
        norm<T>(x, y, gain, bias, sum, out, kept, n, D, epsilon, {dropped, scale, seed, other});                        \
    }                                                                                                                   \
    extern "C" void norm_back_##NAME(const T* x, const T* gain, const T* g, const float* kept, T* dx, T* dy,            \
                                     float* partial, int threads, int64_t n, int D, uint32_t dropped, float scale,      \
                                     uint32_t seed, uint32_t other) {                                                   \
        norm_back<T>(x, gain, g, kept, dx, dy, partial, threads, n, D, {dropped, scale, seed, other});                  \
    }

FOR(float, float32)
FOR(bf16, bfloat16)
