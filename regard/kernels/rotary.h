// Rotary positions: the pairs of features of queries or keys, each turned by its token's angle, in one pass over memory.

#pragma once

#include "team.h"
#include "vectors.h"

namespace {

// Where the first feature of each of B sequences, H heads and T tokens lies, in numbers.
struct Strides { int64_t row, head, token; };

// Each of the eight numbers twice, side by side.
inline Floats twice(const float* p) {
    typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));
    const Eight x = *(const Eight*)p;
    return __builtin_shufflevector(x, x, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
}

// x (B, H, T, D), D a multiple of 16; table (2, P, D / 2) has the sines and cosines of P positions. The gradient is
// turned back: its `sign` is -1.
template <class T>
void turn(const T* x, Strides from, T* out, Strides to, const float* table, const int64_t* positions, int64_t B,
          int64_t H, int64_t tokens, int64_t D, int64_t P, float sign) {
    const Floats signs = Floats{-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1} * sign;
    each(threads(), B * tokens, [&](int64_t i) {
        const int64_t b = i / tokens, t = i % tokens;
        const float *sines = table + positions[t] * (D / 2), *cosines = sines + P * (D / 2);
        for (int64_t d = 0; d < D; d += W) {
            const Floats sine = twice(sines + d / 2) * signs, cosine = twice(cosines + d / 2);
            for (int64_t h = 0; h < H; h++) {
                const Floats y = load(x + b * from.row + h * from.head + t * from.token + d);
                const Floats others = __builtin_shufflevector(y, y, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
                store(out + b * to.row + h * to.head + t * to.token + d, y * cosine + others * sine);
            }
        }
    });
}

}  // namespace
