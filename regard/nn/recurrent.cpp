// A step of a recurrence but for its matrix products, in one pass over memory, for float32 and bfloat16.
//
// Plain C functions over raw pointers, held equal to their references in PyTorch by tests. All arithmetic is float32
// inside; an LSTM's cells are float32 outside as well. Loops are written so that compilers turn them into vectors.
// Sizes: B rows, D features.

#include <cstdint>
#include <cstring>

namespace {

using std::int64_t;
struct bf16 { uint16_t bits; };

inline float load(float x) { return x; }
inline float load(bf16 x) { uint32_t u = uint32_t(x.bits) << 16; float y; std::memcpy(&y, &u, 4); return y; }
inline void store(float& p, float x) { p = x; }
inline void store(bf16& p, float x) {  // to nearest, ties to even
    uint32_t u; std::memcpy(&u, &x, 4);
    p.bits = uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float absolute(float x) { return __builtin_fabsf(x); }
inline float signed_as(float x, float sign) { return __builtin_copysignf(x, sign); }

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
inline float sigmoid(float x) {
    float e = exponential(-absolute(x)), s = 1.0f / (1.0f + e);
    return x < 0.0f ? e * s : s;
}
inline float tangent(float x) {
    float e = exponential(-2.0f * absolute(x));
    return signed_as((1.0f - e) / (1.0f + e), x);
}

constexpr int64_t SMALL = 1 << 14;  // numbers for which waking the other threads is not worth it

#define ROWS _Pragma("omp parallel for schedule(static) if (B * D > SMALL)") for (int64_t b = 0; b < B; b++)
#define FEATURES _Pragma("omp simd") for (int64_t d = 0; d < D; d++)

// z (B, 4 D): sums of input gate, forget gate, candidate and output gate; kept: the four themselves. Cells c -> next.
template <class T> void lstm(int64_t B, int64_t D, const T* z, const float* c, T* kept, float* next, T* out) {
    ROWS {
        const T *zi = z + b * 4 * D, *zf = zi + D, *zg = zf + D, *zo = zg + D;
        T *ki = kept + b * 4 * D, *kf = ki + D, *kg = kf + D, *ko = kg + D, *hb = out + b * D;
        const float* cb = c + b * D;
        float* nb = next + b * D;
        FEATURES {
            float i = sigmoid(load(zi[d])), f = sigmoid(load(zf[d])), g = tangent(load(zg[d])), o = sigmoid(load(zo[d]));
            float cell = f * cb[d] + i * g;
            store(ki[d], i); store(kf[d], f); store(kg[d], g); store(ko[d], o);
            nb[d] = cell;
            store(hb[d], o * tangent(cell));
        }
    }
}

// From the gradients of hidden, dh, and of the next cells, dn, those of the sums, dz, and of the cells, dc.
template <class T>
void lstm_back(int64_t B, int64_t D, const T* kept, const float* c, const float* next, const T* dh, const float* dn, T* dz,
               float* dc) {
    ROWS {
        const T *ki = kept + b * 4 * D, *kf = ki + D, *kg = kf + D, *ko = kg + D;
        T *di = dz + b * 4 * D, *df = di + D, *dg = df + D, *dO = dg + D;
        const float *cb = c + b * D, *nb = next + b * D, *dnb = dn + b * D;
        const T* dhb = dh + b * D;
        float* dcb = dc + b * D;
        FEATURES {
            float i = load(ki[d]), f = load(kf[d]), g = load(kg[d]), o = load(ko[d]), h = load(dhb[d]);
            float t = tangent(nb[d]), cell = dnb[d] + h * o * (1.0f - t * t);
            store(di[d], cell * g * i * (1.0f - i));
            store(df[d], cell * cb[d] * f * (1.0f - f));
            store(dg[d], cell * i * (1.0f - g * g));
            store(dO[d], h * t * o * (1.0f - o));
            dcb[d] = cell * f;
        }
    }
}

// x and z (B, 3 D): what input and hidden give to reset gate, update gate and candidate.
// kept (B, 4 D): the three themselves, and what hidden gives to the candidate.
template <class T> void gru(int64_t B, int64_t D, const T* x, const T* z, const T* h, T* kept, T* out) {
    ROWS {
        const T *xr = x + b * 3 * D, *xu = xr + D, *xn = xu + D, *zr = z + b * 3 * D, *zu = zr + D, *zn = zu + D;
        const T* hb = h + b * D;
        T *kr = kept + b * 4 * D, *ku = kr + D, *kn = ku + D, *kz = kn + D, *ob = out + b * D;
        FEATURES {
            float r = sigmoid(load(xr[d]) + load(zr[d])), u = sigmoid(load(xu[d]) + load(zu[d])), y = load(zn[d]);
            float n = tangent(load(xn[d]) + r * y);
            store(kr[d], r); store(ku[d], u); store(kn[d], n); store(kz[d], y);
            store(ob[d], u * load(hb[d]) + (1.0f - u) * n);
        }
    }
}

template <class T>
void gru_back(int64_t B, int64_t D, const T* kept, const T* h, const T* dout, T* dx, T* dz, T* dh) {
    ROWS {
        const T *kr = kept + b * 4 * D, *ku = kr + D, *kn = ku + D, *kz = kn + D, *hb = h + b * D, *gb = dout + b * D;
        T *xr = dx + b * 3 * D, *xu = xr + D, *xn = xu + D, *yr = dz + b * 3 * D, *yu = yr + D, *yn = yu + D;
        T* dhb = dh + b * D;
        FEATURES {
            float r = load(kr[d]), u = load(ku[d]), n = load(kn[d]), g = load(gb[d]);
            float dn = g * (1.0f - u) * (1.0f - n * n);
            float dr = dn * load(kz[d]) * r * (1.0f - r), du = g * (load(hb[d]) - n) * u * (1.0f - u);
            store(xr[d], dr); store(yr[d], dr);
            store(xu[d], du); store(yu[d], du);
            store(xn[d], dn); store(yn[d], dn * r);
            store(dhb[d], g * u);
        }
    }
}

}  // namespace

#define BOTH(T, NAME)                                                                                                  \
    extern "C" void lstm_##NAME(int64_t B, int64_t D, const T* z, const float* c, T* kept, float* next, T* out) {      \
        lstm(B, D, z, c, kept, next, out);                                                                             \
    }                                                                                                                  \
    extern "C" void lstm_back_##NAME(int64_t B, int64_t D, const T* kept, const float* c, const float* next,           \
                                     const T* dh, const float* dn, T* dz, float* dc) {                                 \
        lstm_back(B, D, kept, c, next, dh, dn, dz, dc);                                                                \
    }                                                                                                                  \
    extern "C" void gru_##NAME(int64_t B, int64_t D, const T* x, const T* z, const T* h, T* kept, T* out) {            \
        gru(B, D, x, z, h, kept, out);                                                                                 \
    }                                                                                                                  \
    extern "C" void gru_back_##NAME(int64_t B, int64_t D, const T* kept, const T* h, const T* dout, T* dx, T* dz,      \
                                    T* dh) {                                                                           \
        gru_back(B, D, kept, h, dout, dx, dz, dh);                                                                     \
    }
BOTH(float, float32)
BOTH(bf16, bfloat16)
