// Label-smoothed cross-entropy of one token.

#pragma once

#include "entry.h"
#include "vectors.h"

namespace {

// Before a loss is made of logits (n, V), whose targets say where to write.
inline void check_targets(const int64_t* targets, int64_t n, int64_t V) {
    for (int64_t i = 0; i < n; i++)
        if (targets[i] >= V) fail("target %lld of token %lld is outside of the vocabulary of %lld", (long long)targets[i],
                                  (long long)i, (long long)V);
}

// Logits (V,) become the gradient of the loss, in place; returns the loss. A target < 0 is padding. `space` is (V,).
template <class T> float smoothed_row(T* x, int64_t V, int64_t target, float smoothing, float* space) {
    if (target < 0) { std::memset((void*)x, 0, V * sizeof(T)); return 0; }
    int64_t whole = V / W * W;
    Floats m = all(-INFINITY), s = {}, e = {};
    for (int64_t j = 0; j < whole; j += W) { Floats z = load(x + j); m = larger(z, m); s += z; }
    float top = largest(m), total = sum(s);
    for (int64_t j = whole; j < V; j++) { float z = load1(x + j); top = z > top ? z : top; total += z; }
    for (int64_t j = 0; j < whole; j += W) { Floats z = exponential(load(x + j) - top); store(space + j, z); e += z; }
    float mass = sum(e);
    for (int64_t j = whole; j < V; j++) { space[j] = std::exp(load1(x + j) - top); mass += space[j]; }
    float loss = top + std::log(mass) - (1 - smoothing) * load1(x + target) - smoothing * total / V;
    float inverse = 1 / mass, even = smoothing / V;
    for (int64_t j = 0; j < whole; j += W) store(x + j, load(space + j) * inverse - even);
    for (int64_t j = whole; j < V; j++) store1(x + j, space[j] * inverse - even);
    store1(x + target, space[target] * inverse - even - (1 - smoothing));
    return loss;
}

}  // namespace
