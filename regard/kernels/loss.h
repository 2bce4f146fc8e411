// Label-smoothed cross-entropy of one token, and how far two predictions of it disagree.

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

// KL(p, q) + KL(q, p) of two rows of logits (V,), which become its gradients, in place. `space` is (2 V,).
template <class T> float diverging_row(T* x, T* y, int64_t V, float* space) {
    const int64_t whole = V / W * W;
    T* rows[2] = {x, y};
    float top[2], inverse[2], mean[2] = {};
    for (int side = 0; side < 2; side++) {
        const T* row = rows[side];
        float* out = space + side * V;
        Floats m = all(-INFINITY), e = {};
        for (int64_t j = 0; j < whole; j += W) m = larger(load(row + j), m);
        top[side] = largest(m);
        for (int64_t j = whole; j < V; j++) top[side] = std::max(top[side], load1(row + j));
        for (int64_t j = 0; j < whole; j += W) { Floats z = exponential(load(row + j) - top[side]); store(out + j, z); e += z; }
        float mass = sum(e);
        for (int64_t j = whole; j < V; j++) { out[j] = std::exp(load1(row + j) - top[side]); mass += out[j]; }
        top[side] += std::log(mass);
        inverse[side] = 1 / mass;
    }
    // The logarithm of p / q of a token is the difference of its logits less that of what they are divided by.
    const float shift = top[0] - top[1], ip = inverse[0], iq = inverse[1];
    const float *p = space, *q = space + V;
    Floats a = {}, b = {};
    for (int64_t j = 0; j < whole; j += W) {
        Floats odds = load(x + j) - load(y + j) - shift;
        a += load(p + j) * odds;
        b += load(q + j) * odds;
    }
    mean[0] = sum(a), mean[1] = sum(b);
    for (int64_t j = whole; j < V; j++) {
        float odds = load1(x + j) - load1(y + j) - shift;
        mean[0] += p[j] * odds, mean[1] += q[j] * odds;
    }
    mean[0] *= ip, mean[1] *= iq;
    for (int64_t j = 0; j < whole; j += W) {
        Floats odds = load(x + j) - load(y + j) - shift, one = load(p + j) * ip, other = load(q + j) * iq, gap = one - other;
        store(x + j, one * (odds - mean[0]) + gap);
        store(y + j, other * (mean[1] - odds) - gap);
    }
    for (int64_t j = whole; j < V; j++) {
        float odds = load1(x + j) - load1(y + j) - shift, one = p[j] * ip, other = q[j] * iq, gap = one - other;
        store1(x + j, one * (odds - mean[0]) + gap);
        store1(y + j, other * (mean[1] - odds) - gap);
    }
    return mean[0] - mean[1];
}

}  // namespace
