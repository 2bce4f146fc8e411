// Dropout with a residual connection, and layer norm, each in one pass over memory.

#pragma once

#include <cstring>

#include "team.h"
#include "vectors.h"

namespace {

// -- dropout and residual ----------------------------------------------------------------------------------------------

// 32 random bits an element: a hash of its position under a seed (the finaliser of MurmurHash3, twice).
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

    Ints kept(int64_t i) const {  // of the 16 from position i on
        const Words steps = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        return (Ints)(hash(hash(steps + uint32_t(i), seed), other ^ uint32_t(uint64_t(i) >> 32)) >= dropped);
    }
    Floats operator()(int64_t i, Floats y) const { return pick(kept(i), y * scale, all(0.0f)); }
};

// out = x + y, y's elements dropped or scaled; without x, only the second part.
template <class T> void drop_add(const T* x, const T* y, T* out, int64_t n, Drop drop) {
    each(threads(), (n + 1023) / 1024, [&](int64_t block) {
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
    });
}

// -- layer norm --------------------------------------------------------------------------------------------------------

// Rows x (n, D), D a multiple of 16, normalised, times gain, plus bias; each row's mean and 1 / deviation are kept. With
// y, x first gets y added, dropped: `sum` (n, D).
template <class T>
void norm(const T* x, const T* y, const T* gain, const T* bias, T* sum_of, T* out, float* kept, int64_t n, int D,
          float epsilon, Drop drop) {
    each(threads(), n, [&](int64_t i) {
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
    });
}

// partial (shares, 2, D) receives what each share of the rows gives to the gradients of gain and bias; dy, if there is
// one, that of what was dropped and added.
template <class T>
void norm_back(const T* x, const T* gain, const T* g, const float* kept, T* dx, T* dy, float* partial, int shares,
               int64_t n, int D, Drop drop) {
    each(shares, shares, [&](int64_t share) {
        float *dgain = partial + share * 2 * D, *dbias = dgain + D;
        std::memset(dgain, 0, 2 * D * sizeof(float));
        for (int64_t i = n * share / shares; i < n * (share + 1) / shares; i++) {
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
    });
}

}  // namespace
