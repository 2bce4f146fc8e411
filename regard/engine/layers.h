// The parts of a layer that are no products of matrices: norm, activations, and one row's attention.

#pragma once

#include "numbers.h"

namespace {

struct Norm { const float *gain, *bias; };

// x (D), of which the last numbers may be zeros that only fill it up: `features` are its own.
void normalise(const float* x, float* out, int D, int features, Norm norm, float epsilon) {
    Floats total{}, squares{};
    for (int d = 0; d < D; d += W) total += load(x + d);
    float mean = sum(total) / features;
    for (int d = 0; d < D; d += W) {
        Floats y = load(x + d) - mean;
        for (int i = features - d; i < W; i++) y[i] = 0.0f;
        squares += y * y;
    }
    float factor = 1.0f / std::sqrt(sum(squares) / features + epsilon);
    for (int d = 0; d < D; d += W) store(out + d, (load(x + d) - mean) * factor * load(norm.gain + d) + load(norm.bias + d));
}

enum Activation { RELU, GELU, SILU };

inline Floats sigmoid(Floats x) {
    const Floats e = exponential(-larger(x, -x));
    return (x > all(0.0f) ? all(1.0f) : e) / (1.0f + e);
}

inline Floats activate(Floats x, int activation) {
    if (activation == RELU) return larger(x, all(0.0f));
    if (activation == SILU) return x * sigmoid(x);
    Floats size = larger(x, -x);
    Floats z = size * 0.70710678f, t = 1.0f / (1.0f + 0.3275911f * z);  // erf: Abramowitz and Stegun, 7.1.26
    Floats p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    Floats erf = 1.0f - p * exponential(-z * z);
    return 0.5f * x * (1.0f + (x > all(0.0f) ? erf : -erf));
}

// Softmax of n scores, whole vectors, in their place.
inline void softmax(float* scores, int n) {
    Floats most = load(scores), total{};
    for (int i = W; i < n; i += W) most = larger(most, load(scores + i));
    const float peak = largest(most);
    for (int i = 0; i < n; i += W) {
        Floats e = exponential(load(scores + i) - peak);
        store(scores + i, e), total += e;
    }
    const float factor = 1.0f / sum(total);
    for (int i = 0; i < n; i += W) store(scores + i, load(scores + i) * factor);
}

// The head of a query, of which a key's numbers are multiplied and summed to sixteen; HEAD is its width, or 0.
template <int HEAD, class T> struct Query {
    const float* q;
    int width;
    Query(const float* q, int width) : q(q), width(HEAD ? HEAD : width) {}
    Floats times(const T* key) const {
        Floats products = load(q) * load(key);
        for (int d = W; d < width; d += W) products += load(q + d) * load(key + d);
        return products;
    }
};

// The head of a value times a weight, summed over positions.
template <int HEAD, class T> struct Mixed {
    static constexpr int STEP = HEAD ? HEAD : W;  // of its numbers, how many at a time
    Floats sums[STEP / W] = {};
    void add(float weight, const T* value) {
        for (int v = 0; v < STEP / W; v++) sums[v] += weight * load(value + v * W);
    }
    void put(float* out) const {
        for (int v = 0; v < STEP / W; v++) store(out + v * W, sums[v]);
    }
};

// Of a word of two numbers in bfloat16 the lower half is moved up, the upper one is as it is: every other number together.
inline Words pairs(const bf16* p) { return *(const Words*)p; }
inline Floats lower(Words both) { return (Floats)(both << 16); }
inline Floats upper(Words both) { return (Floats)(both & 0xffff0000u); }

template <> struct Query<64, bf16> {
    Floats even[2], odd[2];
    Query(const float* q, int) {
        for (int v = 0; v < 2; v++, q += 2 * W) {
            const Floats a = load(q), b = load(q + W);
            even[v] = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            odd[v] = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
        }
    }
    Floats times(const bf16* key) const {
        const Words one = pairs(key), other = pairs(key + 2 * W);
        return lower(one) * even[0] + upper(one) * odd[0] + lower(other) * even[1] + upper(other) * odd[1];
    }
};
template <> struct Mixed<64, bf16> {
    static constexpr int STEP = 64;
    Floats even[2] = {}, odd[2] = {};
    void add(float weight, const bf16* value) {
        for (int v = 0; v < 2; v++) {
            const Words both = pairs(value + v * 2 * W);
            even[v] += weight * lower(both), odd[v] += weight * upper(both);
        }
    }
    void put(float* out) const {
        for (int v = 0; v < 2; v++, out += 2 * W) {
            const Floats a = even[v], b = odd[v];
            store(out, __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
            store(out + W, __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
        }
    }
};

// One query (H * dk) over n positions, each with its keys (H * dk) and behind them its values (H * dv) -> out (H * dv).
// HEAD is dk and dv where they are known when this is compiled, else 0. weights has room for whole vectors of each head;
// look(head, weights) is shown them. Each part goes through all heads, so that none waits for its own softmax.
template <int HEAD, class T, class Look>
void attend_one(const float* q, int heads, int dk, int dv, int n, const T* const* at, float* out, float* weights, Look look) {
    if (HEAD) dk = dv = HEAD;
    const int room = (n + W - 1) / W * W;
    for (int h = 0; h < heads; h++) {
        const Query<HEAD, T> query(q + h * dk, dk);
        for (int p = 0; p < n; p += W) {
            Floats part[W] = {};
            int count = std::min(W, n - p);
            for (int i = 0; i < count; i++) {
                const T* key = at[p + i] + h * dk;
                if (HEAD)  // the next head's keys and this one's values
                    for (int line = 0; line < HEAD; line += 64 / int(sizeof(T))) {
                        __builtin_prefetch(key + HEAD + line);
                        __builtin_prefetch(key + heads * HEAD + line);
                    }
                part[i] = query.times(key);
            }
            Floats scores = sums(part);
            for (int i = count; i < W; i++) scores[i] = LOWEST;
            store(weights + h * room + p, scores);
        }
    }
    for (int h = 0; h < heads; h++) softmax(weights + h * room, room), look(h, (const float*)weights + h * room);
    for (int h = 0; h < heads; h++, out += dv)
        for (int d = 0; d < dv; d += Mixed<HEAD, T>::STEP) {
            Mixed<HEAD, T> mixed;
            for (int p = 0; p < n; p++) mixed.add(weights[h * room + p], at[p] + heads * dk + h * dv + d);
            mixed.put(out + d);
        }
}

}  // namespace
