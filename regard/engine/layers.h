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

inline Floats activate(Floats x, int activation) {
    if (activation == RELU) return larger(x, all(0.0f));
    Floats size = larger(x, -x), e = exponential(-size);
    if (activation == SILU) return x * (x > all(0.0f) ? all(1.0f) : e) / (1.0f + e);
    Floats z = size * 0.70710678f, t = 1.0f / (1.0f + 0.3275911f * z);  // erf: Abramowitz and Stegun, 7.1.26
    Floats p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    Floats erf = 1.0f - p * exponential(-z * z);
    return 0.5f * x * (1.0f + (x > all(0.0f) ? erf : -erf));
}

// One query (H * dk) over n positions, each with its keys (H * dk) and behind them its values (H * dv) -> out (H * dv).
// HEAD is dk and dv where they are known when this is compiled, else 0. look(head, weights, factor) is shown each head's
// weights: factor times these n numbers.
template <int HEAD, class T, class Look>
void attend_one(const float* q, int heads, int dk, int dv, int n, const T* const* at, float* out, float* weights, Look look) {
    if (HEAD) dk = dv = HEAD;
    for (int h = 0; h < heads; h++, q += dk, out += dv) {
        Floats most = all(LOWEST);
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
                Floats products = load(q) * load(key);
                for (int d = W; d < dk; d += W) products += load(q + d) * load(key + d);
                part[i] = products;
            }
            Floats scores = sums(part);
            for (int i = count; i < W; i++) scores[i] = LOWEST;
            most = larger(most, scores);
            store(weights + p, scores);
        }
        float peak = largest(most);
        Floats total{};
        for (int p = 0; p < n; p += W) {
            Floats e = exponential(load(weights + p) - peak);
            store(weights + p, e), total += e;
        }
        float factor = 1.0f / sum(total);
        look(h, weights, factor);
        for (int d = 0; d < dv; d += HEAD ? HEAD : W) {
            constexpr int MANY = HEAD ? HEAD / W : 1;
            Floats mixed[MANY] = {};
            for (int p = 0; p < n; p++) {
                const T* value = at[p] + heads * dk + h * dv + d;
                for (int v = 0; v < MANY; v++) mixed[v] += weights[p] * load(value + v * W);
            }
            for (int v = 0; v < MANY; v++) store(out + d + v * W, mixed[v] * factor);
        }
    }
}

}  // namespace
