// The training step's parts that are not matrix products, each in one pass over memory, for float32 and bfloat16.
//
// Plain C functions over raw pointers: no PyTorch header is needed, so that building takes seconds. They are held equal
// to their references in PyTorch by tests. Products and sums are float32 inside, whatever the type outside.

#include <vector>

#include "loss.h"
#include "vectors.h"

namespace {

// -- products of small matrices ---------------------------------------------------------------------------------------

// C (M, N) = A (M, K) B (K, N), all float32. A's element (i, k) is a[i * ai + k * ak], so A may be read transposed.
// N is a multiple of 16; rows of B and C are N apart.
template <int R, int V>
inline void tile(int K, const float* a, int64_t ai, int64_t ak, const float* b, float* c, int N) {
    Floats s[R][V] = {};
    for (int k = 0; k < K; k++)
        for (int v = 0; v < V; v++) {
            Floats y = load(b + int64_t(k) * N + v * W);
            for (int r = 0; r < R; r++) s[r][v] += a[r * ai + k * ak] * y;
        }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) store(c + int64_t(r) * N + v * W, s[r][v]);
}

template <int V>
inline void rows(int M, int K, const float* a, int64_t ai, int64_t ak, const float* b, float* c, int N) {
    int i = 0;
    for (; i + 6 <= M; i += 6) tile<6, V>(K, a + i * ai, ai, ak, b, c + int64_t(i) * N, N);
    for (; i + 2 <= M; i += 2) tile<2, V>(K, a + i * ai, ai, ak, b, c + int64_t(i) * N, N);
    for (; i < M; i++) tile<1, V>(K, a + i * ai, ai, ak, b, c + int64_t(i) * N, N);
}

void product(int M, int N, int K, const float* a, int64_t ai, int64_t ak, const float* b, float* c) {
    int j = 0;
    for (; j + 4 * W <= N; j += 4 * W) rows<4>(M, K, a, ai, ak, b + j, c + j, N);
    for (; j + 2 * W <= N; j += 2 * W) rows<2>(M, K, a, ai, ak, b + j, c + j, N);
    for (; j < N; j += W) rows<1>(M, K, a, ai, ak, b + j, c + j, N);
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

// -- attention ---------------------------------------------------------------------------------------------------------

// A tensor (heads, tokens, width) whose width is contiguous.
template <class T> struct View { T* at; int64_t head, row; T* of(int h, int64_t i) const { return at + h * head + i * row; } };

struct Room {  // scratch of one thread, grown when a longer sequence comes
    std::vector<float> q, k, kt, v, p, dp, o, grad, more;
    static float* of(std::vector<float>& x, int64_t n) { if (int64_t(x.size()) < n) x.resize(n); return x.data(); }
};

// Scores (T, S) to weights, in place; rows are `to` apart, what lies beyond S becomes 0. A causal row i sees i + 1 keys.
void weigh(float* p, int T, int S, int to, bool causal) {
    const Ints lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int i = 0; i < T; i++) {
        float* row = p + int64_t(i) * to;
        int seen = causal && i + 1 < S ? i + 1 : S;
        auto score = [&](int j) { return pick(lanes + j < seen, load(row + j), all(-INFINITY)); };
        Floats m = score(0);
        for (int j = W; j < to; j += W) { Floats x = score(j); m = pick(x > m, x, m); }
        float top = largest(m);
        Floats s = {};
        for (int j = 0; j < to; j += W) { Floats e = exponential(score(j) - top); store(row + j, e); s += e; }
        float inverse = 1.0f / sum(s);
        for (int j = 0; j < to; j += W) store(row + j, load(row + j) * inverse);
    }
}

template <class T>
void attend(View<const T> q, View<const T> k, View<const T> v, View<T> out, const int32_t* qs, const int32_t* ks,
            int B, int H, int D, int E, bool causal) {
    #pragma omp parallel
    {
        Room room;
        #pragma omp for schedule(dynamic, 4)
        for (int task = 0; task < B * H; task++) {
            int b = task / H, h = task % H, Dp = up(D), Ep = up(E);
            int64_t q0 = qs[b], k0 = ks[b];
            int n = qs[b + 1] - qs[b], S = ks[b + 1] - ks[b], Sp = up(S);
            if (n == 0) continue;
            float* Q = Room::of(room.q, int64_t(n) * Dp);
            float* K = Room::of(room.k, int64_t(S) * Dp);
            float* Kt = Room::of(room.kt, int64_t(Dp) * Sp);
            float* V = Room::of(room.v, int64_t(S) * Ep);
            float* P = Room::of(room.p, int64_t(n) * Sp);
            float* O = Room::of(room.o, int64_t(n) * Ep);
            copy_in(q.of(h, q0), q.row, n, D, Q, Dp);
            copy_in(k.of(h, k0), k.row, S, D, K, Dp);
            copy_in(v.of(h, k0), v.row, S, E, V, Ep);
            transpose(K, S, Dp, Kt, Sp);
            product(n, Sp, D, Q, Dp, 1, Kt, P);
            weigh(P, n, S, Sp, causal);
            product(n, Ep, S, P, Sp, 1, V, O);
            copy_out(O, Ep, n, E, out.of(h, q0), out.row);
        }
    }
}

// The weights are made again from queries and keys: cheaper than keeping them.
template <class T>
void attend_back(View<const T> q, View<const T> k, View<const T> v, View<const T> g, View<T> dq, View<T> dk, View<T> dv,
                 const int32_t* qs, const int32_t* ks, int B, int H, int D, int E, bool causal) {
    #pragma omp parallel
    {
        Room room;
        #pragma omp for schedule(dynamic, 4)
        for (int task = 0; task < B * H; task++) {
            int b = task / H, h = task % H, Dp = up(D), Ep = up(E);
            int64_t q0 = qs[b], k0 = ks[b];
            int n = qs[b + 1] - qs[b], S = ks[b + 1] - ks[b], Sp = up(S);
            float* Q = Room::of(room.q, int64_t(n) * Dp);
            float* K = Room::of(room.k, int64_t(S) * Dp);
            float* Kt = Room::of(room.kt, int64_t(Dp > Ep ? Dp : Ep) * Sp);
            float* V = Room::of(room.v, int64_t(S) * Ep);
            float* P = Room::of(room.p, int64_t(n) * Sp);
            float* G = Room::of(room.grad, int64_t(n) * Ep);
            float* dP = Room::of(room.dp, int64_t(n) * Sp);
            float* out = Room::of(room.more, int64_t(n > S ? n : S) * (Dp > Ep ? Dp : Ep));
            copy_in(q.of(h, q0), q.row, n, D, Q, Dp);
            copy_in(k.of(h, k0), k.row, S, D, K, Dp);
            copy_in(v.of(h, k0), v.row, S, E, V, Ep);
            copy_in(g.of(h, q0), g.row, n, E, G, Ep);
            transpose(K, S, Dp, Kt, Sp);
            product(n, Sp, D, Q, Dp, 1, Kt, P);
            weigh(P, n, S, Sp, causal);
            product(S, Ep, n, P, 1, Sp, G, out);                       // dV = P^T G
            copy_out(out, Ep, S, E, dv.of(h, k0), dv.row);
            transpose(V, S, Ep, Kt, Sp);
            product(n, Sp, E, G, Ep, 1, Kt, dP);                       // dP = G V^T
            for (int i = 0; i < n; i++) {                              // dS = P (dP - sum of P dP)
                float *p = P + int64_t(i) * Sp, *d = dP + int64_t(i) * Sp;
                Floats s = {};
                for (int j = 0; j < Sp; j += W) s += load(p + j) * load(d + j);
                float mean = sum(s);
                for (int j = 0; j < Sp; j += W) store(d + j, load(p + j) * (load(d + j) - mean));
            }
            product(n, Dp, S, dP, Sp, 1, K, out);                      // dQ = dS K
            copy_out(out, Dp, n, D, dq.of(h, q0), dq.row);
            product(S, Dp, n, dP, 1, Sp, Q, out);                      // dK = dS^T Q
            copy_out(out, Dp, S, D, dk.of(h, k0), dk.row);
        }
    }
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

// out = x + y, each element of y dropped with chance `dropped` / 2^32 and scaled; without x, only the second part.
template <class T>
void drop_add(const T* x, const T* y, T* out, int64_t n, uint32_t dropped, float scale, uint32_t seed, uint32_t other) {
    const Words steps = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    #pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < (n + 1023) / 1024; block++) {
        int64_t end = block * 1024 + 1024 < n ? block * 1024 + 1024 : n;
        for (int64_t i = block * 1024; i < end; i += W) {
            Words bits = hash(hash(steps + uint32_t(i), seed), other ^ uint32_t(uint64_t(i) >> 32));
            Ints kept = (Ints)(bits >= dropped);
            if (i + W <= end) {
                Floats z = pick(kept, load(y + i) * scale, all(0.0f));
                store(out + i, x ? load(x + i) + z : z);
            } else
                for (int64_t j = i; j < end; j++) {
                    float z = kept[j - i] ? load1(y + j) * scale : 0.0f;
                    store1(out + j, x ? load1(x + j) + z : z);
                }
        }
    }
}

// -- layer norm --------------------------------------------------------------------------------------------------------

// Rows x (n, D), D a multiple of 16, normalised, times gain, plus bias; each row's mean and 1 / deviation are kept.
template <class T>
void norm(const T* x, const T* gain, const T* bias, T* out, float* kept, int64_t n, int D, float epsilon) {
    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const T* row = x + i * D;
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

// partial (threads, 2, D) receives each thread's share of the gradients of gain and bias.
template <class T>
void norm_back(const T* x, const T* gain, const T* g, const float* kept, T* dx, float* partial, int threads, int64_t n,
               int D) {
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
            }
        }
    }
}

}  // namespace

#define FOR(T, NAME)                                                                                                    \
    extern "C" void attend_##NAME(const T* q, int64_t qh, int64_t qr, const T* k, int64_t kh, int64_t kr, const T* v,   \
                                  int64_t vh, int64_t vr, T* out, int64_t oh, int64_t orow, const int32_t* qs,          \
                                  const int32_t* ks, int B, int H, int D, int E, int causal) {                          \
        attend<T>({q, qh, qr}, {k, kh, kr}, {v, vh, vr}, {out, oh, orow}, qs, ks, B, H, D, E, causal);                  \
    }                                                                                                                   \
    extern "C" void attend_back_##NAME(const T* q, int64_t qh, int64_t qr, const T* k, int64_t kh, int64_t kr,          \
                                       const T* v, int64_t vh, int64_t vr, const T* g, int64_t gh, int64_t gr, T* dq,   \
                                       int64_t dqh, int64_t dqr, T* dk, int64_t dkh, int64_t dkr, T* dv, int64_t dvh,   \
                                       int64_t dvr, const int32_t* qs, const int32_t* ks, int B, int H, int D, int E,   \
                                       int causal) {                                                                    \
        attend_back<T>({q, qh, qr}, {k, kh, kr}, {v, vh, vr}, {g, gh, gr}, {dq, dqh, dqr}, {dk, dkh, dkr},              \
                       {dv, dvh, dvr}, qs, ks, B, H, D, E, causal);                                                     \
    }                                                                                                                   \
    extern "C" void smoothed_##NAME(T* x, int64_t n, int64_t V, const int64_t* y, float smoothing, float* losses) {     \
        smoothed<T>(x, n, V, y, smoothing, losses);                                                                     \
    }                                                                                                                   \
    extern "C" void drop_add_##NAME(const T* x, const T* y, T* out, int64_t n, uint32_t dropped, float scale,           \
                                    uint32_t seed, uint32_t other) {                                                    \
        drop_add<T>(x, y, out, n, dropped, scale, seed, other);                                                         \
    }                                                                                                                   \
    extern "C" void norm_##NAME(const T* x, const T* gain, const T* bias, T* out, float* kept, int64_t n, int D,        \
                                float epsilon) {                                                                        \
        norm<T>(x, gain, bias, out, kept, n, D, epsilon);                                                               \
    }                                                                                                                   \
    extern "C" void norm_back_##NAME(const T* x, const T* gain, const T* g, const float* kept, T* dx, float* partial,   \
                                     int threads, int64_t n, int D) {                                                   \
        norm_back<T>(x, gain, g, kept, dx, partial, threads, n, D);                                                     \
    }

FOR(float, float32)
FOR(bf16, bfloat16)
