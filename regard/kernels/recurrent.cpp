// A step of a recurrence but for its matrix products, in one pass over memory, for float32 and bfloat16; and, where the
// processor has a dot product of bfloat16, an LSTM's whole way through T positions, products included.
//
// Plain C functions over raw pointers, held equal to their references in PyTorch by tests. All arithmetic is float32
// inside; an LSTM's cells are float32 outside as well. Loops are written so that compilers turn them into vectors.
// Sizes: B rows, D features, I input features, T positions.

#include "interleaved.h"
#include "team.h"

namespace {

inline float absolute(float x) { return __builtin_fabsf(x); }
inline float signed_as(float x, float sign) { return __builtin_copysignf(x, sign); }
inline float pick(bool where, float yes, float no) { return where ? yes : no; }
inline Floats absolute(Floats x) { return (Floats)((Words)x & 0x7fffffffu); }
inline Floats signed_as(Floats x, Floats sign) { return (Floats)((Words)x | ((Words)sign & 0x80000000u)); }  // of x >= 0

// e^x for x <= 0, to about 2 units in the last place; below -87 as at -87.
inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = x * 1.44269504f + 12582912.0f;  // adding 1.5 * 2^23 rounds to an integer
    n -= 12582912.0f;
    float r = x - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1.9875691e-4f;
    p = p * r + 1.3981999e-3f;
    p = p * r + 8.3334519e-3f;
    p = p * r + 4.1665796e-2f;
    p = p * r + 1.6666665e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    int32_t power = (int32_t(n) + 127) << 23;
    float scale; std::memcpy(&scale, &power, 4);
    return p * scale;
}
template <class F> inline F sigmoid(F x) {
    F e = exponential(-absolute(x)), s = 1.0f / (1.0f + e);
    return pick(x < 0.0f, e * s, s);
}
template <class F> inline F tangent(F x) {
    F e = exponential(-2.0f * absolute(x));
    return signed_as((1.0f - e) / (1.0f + e), x);
}

// Sums z of input gate, forget gate, candidate and output gate become the four themselves, cells c the next; returns hidden.
template <class F> inline F lstm_one(F (&z)[4], F& c) {
    z[0] = sigmoid(z[0]), z[1] = sigmoid(z[1]), z[2] = tangent(z[2]), z[3] = sigmoid(z[3]);
    c = z[1] * c + z[0] * z[2];
    return z[3] * tangent(c);
}

// From hidden's gradient dh and the next cells': the four k become the gradients of their sums, dc that of the cells c.
template <class F> inline void lstm_one_back(F (&k)[4], F c, F next, F dh, F& dc) {
    F i = k[0], f = k[1], g = k[2], o = k[3], t = tangent(next), cell = dc + dh * o * (1.0f - t * t);
    k[0] = cell * g * i * (1.0f - i);
    k[1] = cell * c * f * (1.0f - f);
    k[2] = cell * i * (1.0f - g * g);
    k[3] = dh * t * o * (1.0f - o);
    dc = cell * f;
}

constexpr int64_t SMALL = 1 << 14;  // numbers for which waking the other threads is not worth it

// f(row) for each of B rows.
template <class F> void each_row(int64_t B, int64_t D, F f) { each(B * D > SMALL ? threads() : 1, B, f); }
#define FEATURES _Pragma("omp simd") for (int64_t d = 0; d < D; d++)

// z (B, 4 D): sums of the gates; kept: the four themselves. Cells c -> next.
template <class T> void lstm(int64_t B, int64_t D, const T* z, const float* c, T* kept, float* next, T* out) {
    each_row(B, D, [&](int64_t b) {
        const T* zb = z + b * 4 * D;
        T *kb = kept + b * 4 * D, *hb = out + b * D;
        const float* cb = c + b * D;
        float* nb = next + b * D;
        FEATURES {
            float gates[4], cell = cb[d];
            for (int v = 0; v < 4; v++) gates[v] = load1(zb + v * D + d);
            store1(hb + d, lstm_one(gates, cell));
            for (int v = 0; v < 4; v++) store1(kb + v * D + d, gates[v]);
            nb[d] = cell;
        }
    });
}

// From the gradients of hidden, dh, and of the next cells, dn, those of the sums, dz, and of the cells, dc.
template <class T>
void lstm_back(int64_t B, int64_t D, const T* kept, const float* c, const float* next, const T* dh, const float* dn, T* dz,
               float* dc) {
    each_row(B, D, [&](int64_t b) {
        const T *kb = kept + b * 4 * D, *dhb = dh + b * D;
        T* zb = dz + b * 4 * D;
        const float *cb = c + b * D, *nb = next + b * D, *dnb = dn + b * D;
        float* dcb = dc + b * D;
        FEATURES {
            float gates[4], cell = dnb[d];
            for (int v = 0; v < 4; v++) gates[v] = load1(kb + v * D + d);
            lstm_one_back(gates, cb[d], nb[d], load1(dhb + d), cell);
            for (int v = 0; v < 4; v++) store1(zb + v * D + d, gates[v]);
            dcb[d] = cell;
        }
    });
}

// x and z (B, 3 D): what input and hidden give to reset gate, update gate and candidate.
// kept (B, 4 D): the three themselves, and what hidden gives to the candidate.
template <class T> void gru(int64_t B, int64_t D, const T* x, const T* z, const T* h, T* kept, T* out) {
    each_row(B, D, [&](int64_t b) {
        const T *xr = x + b * 3 * D, *xu = xr + D, *xn = xu + D, *zr = z + b * 3 * D, *zu = zr + D, *zn = zu + D;
        const T* hb = h + b * D;
        T *kr = kept + b * 4 * D, *ku = kr + D, *kn = ku + D, *kz = kn + D, *ob = out + b * D;
        FEATURES {
            float r = sigmoid(load1(xr + d) + load1(zr + d)), u = sigmoid(load1(xu + d) + load1(zu + d)), y = load1(zn + d);
            float n = tangent(load1(xn + d) + r * y);
            store1(kr + d, r); store1(ku + d, u); store1(kn + d, n); store1(kz + d, y);
            store1(ob + d, u * load1(hb + d) + (1.0f - u) * n);
        }
    });
}

template <class T>
void gru_back(int64_t B, int64_t D, const T* kept, const T* h, const T* dout, T* dx, T* dz, T* dh) {
    each_row(B, D, [&](int64_t b) {
        const T *kr = kept + b * 4 * D, *ku = kr + D, *kn = ku + D, *kz = kn + D, *hb = h + b * D, *gb = dout + b * D;
        T *xr = dx + b * 3 * D, *xu = xr + D, *xn = xu + D, *yr = dz + b * 3 * D, *yu = yr + D, *yn = yu + D;
        T* dhb = dh + b * D;
        FEATURES {
            float r = load1(kr + d), u = load1(ku + d), n = load1(kn + d), g = load1(gb + d);
            float dn = g * (1.0f - u) * (1.0f - n * n);
            float dr = dn * load1(kz + d) * r * (1.0f - r), du = g * (load1(hb + d) - n) * u * (1.0f - u);
            store1(xr + d, dr); store1(yr + d, dr);
            store1(xu + d, du); store1(yu + d, du);
            store1(xn + d, dn); store1(yn + d, dn * r);
            store1(dhb + d, g * u);
        }
    });
}

}  // namespace

#define BOTH(T, NAME)                                                                                                  \
    ENTRY(int64_t, lstm_##NAME)(int64_t B, int64_t D, const T* z, const float* c, T* kept, float* next, T* out) {   \
        return guarded([&] { return lstm(B, D, z, c, kept, next, out), 0; });                                          \
    }                                                                                                                  \
    ENTRY(int64_t, lstm_back_##NAME)(int64_t B, int64_t D, const T* kept, const float* c, const float* next,        \
                                        const T* dh, const float* dn, T* dz, float* dc) {                              \
        return guarded([&] { return lstm_back(B, D, kept, c, next, dh, dn, dz, dc), 0; });                             \
    }                                                                                                                  \
    ENTRY(int64_t, gru_##NAME)(int64_t B, int64_t D, const T* x, const T* z, const T* h, T* kept, T* out) {         \
        return guarded([&] { return gru(B, D, x, z, h, kept, out), 0; });                                              \
    }                                                                                                                  \
    ENTRY(int64_t, gru_back_##NAME)(int64_t B, int64_t D, const T* kept, const T* h, const T* dout, T* dx, T* dz,   \
                                       T* dh) {                                                                        \
        return guarded([&] { return gru_back(B, D, kept, h, dout, dx, dz, dh), 0; });                                  \
    }
BOTH(float, float32)
BOTH(bf16, bfloat16)

#ifdef __AVX512BF16__

namespace {

// -- a whole layer -----------------------------------------------------------------------------------------------------

// Floats and the processor's own vectors are the same registers.
inline Floats (&floats(__m512 (&s)[4]))[4] { return reinterpret_cast<Floats(&)[4]>(s); }

// An LSTM's way: inputs x (T, B, I), weights wx (4 D, I) and wh (4 D, D), bias (4 D,). Hidden h (T + 1, B, D) and cells
// c (T + 1, B, D) have their first positions given and get all others; kept (T, D / 16, B, 4, 16) gets the gates, as they come.
int64_t layer(char* at, const bf16* x, const bf16* wx, const bf16* wh, const bf16* bias, bf16* h, float* c, bf16* kept,
              int64_t T, int64_t B, int I, int D) {
    Workspace space{at};
    Interleaved given{space.take<uint32_t>(Interleaved::words(I, 4 * D)), I / 2, 4 * D};
    Interleaved before{space.take<uint32_t>(Interleaved::words(D, 4 * D)), D / 2, 4 * D};
    if (!at) return space.used;
    together(threads(), [&](Team team) {
        // A panel's columns are the four gates of 16 features, so that their sums meet in registers.
        team.each(D / W, [&](int64_t panel) {
            const int d = int(panel) * W;
            interleave_columns(wx, 4 * D, I, d, given.panel(4 * d), D);
            interleave_columns(wh, 4 * D, D, d, before.panel(4 * d), D);
        });
        team.wait();
        // A thread's rows go through all positions without waiting for another's.
        auto [from, to] = team.share(B);
        for (int64_t t = 0; t < T; t++)
            for (int d = 0; d < D; d += W)
                tiles(t * B + from, t * B + to, [&](int64_t row, auto tall) {
                    constexpr int R = decltype(tall)::value;
                    __m512 s[R][4];
                    for (int r = 0; r < R; r++)
                        for (int v = 0; v < 4; v++) s[r][v] = (__m512)load(bias + v * D + d);
                    add_dots<R>(given.pairs, (const uint32_t*)(x + row * I), I / 2, 1, given.panel(4 * d), s);
                    add_dots<R>(before.pairs, (const uint32_t*)(h + row * D), D / 2, 1, before.panel(4 * d), s);
                    bf16* keep = kept + ((t * D + d) * B + (row - t * B) * W) * 4;
                    for (int r = 0; r < R; r++, keep += PANEL) {
                        int64_t now = (row + r) * D + d, next = now + B * D;
                        alignas(64) Floats cell = load(c + now);
                        store(h + next, lstm_one(floats(s[r]), cell));
                        store(c + next, cell);
                        for (int v = 0; v < 4; v++) store(keep + v * W, floats(s[r])[v]);
                    }
                });
    });
    return 0;
}

// Back again: from the gradients dh of hidden (T, B, D) (none if null), and dlast and dcells (B, D) of hidden and cells after
// each row's position `last` (B,) (none if null), those of all sums, dz (T, B, 4 D), and of first hidden and cells, dfirst and dc (B, D).
int64_t layer_back(char* at, const bf16* wh, const float* c, const bf16* kept, const bf16* dh, const bf16* dlast,
                   const float* dcells, const int64_t* last, bf16* dz, bf16* dfirst, float* dc, int64_t T, int64_t B, int D) {
    Workspace space{at};
    Interleaved w{space.take<uint32_t>(Interleaved::words(4 * D, D)), 2 * D, D};
    if (!at) return space.used;
    auto kept_at = [=](int64_t t, int64_t b, int d) { return kept + ((t * D + d) * B + b * W) * 4; };
    // Of 16 features of a row at a position, whose hidden state has this gradient from the position after.
    auto step = [=](int64_t t, int64_t b, int d, Floats g) {
        int64_t end = b * D + d, now = t * B * D + end, gates = now + 3 * (t * B + b) * D;
        alignas(64) Floats cell = t + 1 < T ? load(dc + end) : Floats{}, k[4];
        if (dh) g += load(dh + now);
        if (dlast && t == last[b]) g += load(dlast + end);
        if (dcells && t == last[b]) cell += load(dcells + end);
        for (int v = 0; v < 4; v++) k[v] = load(kept_at(t, b, d) + v * W);
        lstm_one_back(k, load(c + now), load(c + now + B * D), g, cell);
        for (int v = 0; v < 4; v++) store(dz + gates + v * D, k[v]);
        store(dc + end, cell);
    };
    together(threads(), [&](Team team) {
        team.each(ceil(D, PANEL), [&](int64_t panel) {
            interleave_rows(wh, D, 4 * D, int(panel) * PANEL, int(panel + 1) * PANEL, w);
        });
        team.wait();
        auto [from, to] = team.share(B);
        for (int64_t b = from; b < to; b++)
            for (int d = 0; d < D; d += W) step(T - 1, b, d, Floats{});
        for (int64_t t = T - 1; t >= 0; t--)
            for (int d = 0; d < D; d += PANEL)
                tiles(from, to, [&](int64_t b, auto tall) {
                    constexpr int R = decltype(tall)::value;
                    __m512 s[R][4];
                    for (int r = 0; r < R && t > 0; r++)  // what the step will read, while the sums are made
                        for (int v = 0; v < 4 && d + W * v < D; v++) {
                            int64_t now = ((t - 1) * B + b + r) * D + d + W * v;
                            __builtin_prefetch(c + now);
                            __builtin_prefetch(kept_at(t - 1, b + r, d + W * v));
                            __builtin_prefetch(kept_at(t - 1, b + r, d + W * v) + PANEL / 2);
                            if (dh) __builtin_prefetch(dh + now);
                        }
                    dots<R>(w.pairs, (const uint32_t*)(dz + (t * B + b) * 4 * D), 2 * D, 1, w.panel(d), s);
                    for (int r = 0; r < R; r++)
                        for (int v = 0; v < 4 && d + W * v < D; v++)
                            if (t > 0) step(t - 1, b + r, d + W * v, floats(s[r])[v]);
                            else store(dfirst + (b + r) * D + d + W * v, floats(s[r])[v]);
                });
    });
    return 0;
}

}  // namespace

ENTRY(int64_t, lstm_layer)(char* at, const bf16* x, const bf16* wx, const bf16* wh, const bf16* bias, bf16* h, float* c,
                              bf16* kept, int64_t T, int64_t B, int I, int D) {
    return guarded([&] { return layer(at, x, wx, wh, bias, h, c, kept, T, B, I, D); });
}

ENTRY(int64_t, lstm_layer_back)(char* at, const bf16* wh, const float* c, const bf16* kept, const bf16* dh,
                                   const bf16* dlast, const float* dcells, const int64_t* last, bf16* dz, bf16* dfirst,
                                   float* dc, int64_t T, int64_t B, int D) {
    return guarded([&] { return layer_back(at, wh, c, kept, dh, dlast, dcells, last, dz, dfirst, dc, T, B, D); });
}

#endif
