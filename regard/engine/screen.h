// The outputs of float32 rows, nearly all of them from a product in bfloat16, which takes half of the time or less.
//
// What may be among a row's best, or has a share in its sum of e^output that counts, is computed in float32, to the same
// bits as ever: the error of a product in bfloat16 has a bound (Cauchy and Schwarz), so nothing is missed. Of the others
// only the sum is used. The mean of all columns is taken out before they are rounded, so that their errors have either
// sign and all but vanish there: docs/decisions/0039-screened-outputs.md has the figures.

#pragma once

#include <cmath>
#include <functional>

#include "matrix.h"

namespace {

template <class Kind> struct Screen {  // of the kinds whose products are quick as they are
    static constexpr bool KNOWN = false;
    static constexpr int LEAST = 0;
    void make(const Matrix&) {}
};

template <> struct Screen<Float32> {
#ifdef __AVX512BF16__
    static constexpr bool KNOWN = true;
#else
    static constexpr bool KNOWN = false;  // there a product in bfloat16 is slower
#endif
    static constexpr int LEAST = 8192;     // outputs: of fewer too large a part is computed again
    static constexpr float COUNTS = 8.0f;  // an output so far below the row's greatest has e^-8 of its probability
    Matrix quick;          // the columns, less their mean: what all columns share would make errors that do not vanish
    Numbers<float> mean;   // (K,)
    float longest = 0.0f;  // the Euclidean length of the longest column in it

    void make(const Matrix& exact) {
        const int K = exact.words, N = exact.N;
        quick.size(N, K, words_of<Bfloat16>(K), LOWEST);
        quick.bias = exact.bias;
        auto* in = (const float*)exact.packed.get();
        auto* out = (bf16*)quick.packed.get();
        mean.assign(K, 0.0f);
        each(threads(), K, [&](int64_t k) {
            double total = 0.0;
            for (int n = 0; n < N; n++) total += in[(int64_t(n / PANEL) * K + k) * PANEL + n % PANEL];
            mean[k] = float(total / N);
        });
        std::vector<float> squares(N);
        each(threads(), N, [&](int64_t n) {
            for (int k = 0; k < K; k++) {
                const float value = in[(n / PANEL * K + k) * PANEL + n % PANEL] - mean[k];
                store1(&out[((n / PANEL * quick.words + k / 2) * PANEL + n % PANEL) * 2 + k % 2], value);
                squares[n] += value * value;
            }
        });
        longest = std::sqrt(*std::max_element(squares.begin(), squares.end()));
    }
};

// What is computed with it, for the rows of a step.
struct Screening {
    Rows quick;
    Numbers<float> outputs, most;  // (M, columns + W) and (M, panels): the greatest of each panel
    Numbers<float> order;          // (M, panels): the same, and put in order
    std::vector<float> floors;     // outputs of a row that are less are not computed again
    std::vector<float> common;     // each row's product with the mean of the columns
    int64_t columns = 0, panels = 0;
    struct Part { const float *x, *columns; Floats* out; };  // a row, and sixteen columns of a panel
    std::vector<std::vector<Part>> parts;                    // of each thread

    void reserve(int M, const Matrix& matrix, int64_t threads) {
        quick.reserve(M, matrix.words);
        panels = matrix.panels, columns = panels * PANEL;
        if (size_t need = checked_product({M, columns + W}); outputs.size() < need) outputs.resize(need);
        if (size_t need = checked_product({M, panels}); most.size() < need) most.resize(need), order.resize(need);
        if (floors.size() < size_t(M)) floors.resize(M), common.resize(M);
        parts.resize(threads);
        for (auto& of_thread : parts) of_thread.reserve(size_t(M) * (PANEL / W));
    }
    float* of(int row) { return outputs.data() + row * (columns + W); }
    float* most_of(int row) { return most.data() + row * panels; }

    // All outputs of float32 rows; the best `keep` of each row, and all that count, are those of the exact matrix.
    void compute(Team& team, Rows& rows, const Matrix& exact, const Screen<Float32>& screen, int keep) {
        auto [first, last] = team.share(rows.M);
        for (int row = first; row < last; row++) {
            const float* x = (const float*)rows.at(row);
            Floats shared{};
            for (int k = 0; k < exact.K; k += W) shared += load(x + k) * load(screen.mean.data() + k);
            common[row] = sum(shared);
            prepare<Bfloat16>(quick, row, x, exact.K);
        }
        team.wait();
        multiply<Bfloat16>(screen.quick, quick, team, [&](int row, int column, const Floats* y) {
            for (int v = 0; v < PANEL / W; v++) store(of(row) + column + v * W, y[v] + common[row]);
            most_of(row)[column / PANEL] = largest(larger(larger(y[0], y[1]), larger(y[2], y[3]))) + common[row];
        });
        team.wait();
        for (int row = first; row < last; row++) floors[row] = floor_of(row, (const float*)rows.at(row), exact.K, screen, keep);
        team.wait();
        auto [begin, end] = team.share(int(panels));
        for (int panel = begin; panel < end; panel++) compute_again(panel, rows, exact, parts[team.id]);
    }

private:
    float floor_of(int row, const float* x, int K, const Screen<Float32>& screen, int keep) {
        if (keep > panels) return LOWEST;
        float *from = order.data() + row * panels, *kth = from + keep - 1;
        std::copy_n(most_of(row), panels, from);
        std::nth_element(from, kth, from + panels, std::greater<float>());
        const float greatest = *std::max_element(from, kth + 1);
        Floats squares{};
        for (int k = 0; k < K; k += W) squares += load(x + k) * load(x + k);
        // Rounding to 8 bits changes a factor by at most 2^-9 of it, so an output by 2^-8 of |x| |column|; and so many sums
        // in float32 by some of their last bits.
        const float error = std::sqrt(sum(squares)) * screen.longest * (1.01f + float(K) / 65536.0f) / 256.0f;
        return std::min(greatest - Screen<Float32>::COUNTS, *kth - 2.0f * error);
    }

    static constexpr int PARTS = 8;  // at a time: that many sums are under way at once

    // Sums in the order of tile(), so to the same bits.
    static void compute_parts(const std::vector<Part>& parts, int words) {
        for (size_t first = 0; first < parts.size(); first += PARTS) {
            Floats s[PARTS] = {};
            Part of[PARTS];
            for (size_t i = 0; i < PARTS; i++) of[i] = parts[std::min(first + i, parts.size() - 1)];
            for (int k = 0; k < words; k++)
                for (int i = 0; i < PARTS; i++) s[i] = s[i] + of[i].x[k] * load(of[i].columns + k * PANEL);
            for (int i = 0; i < PARTS; i++) *of[i].out = s[i];
        }
    }

    void compute_again(int panel, Rows& rows, const Matrix& exact, std::vector<Part>& parts) {
        const int first = panel * PANEL;
        const float* columns = (const float*)exact.packed.get() + int64_t(panel) * exact.words * PANEL;
        parts.clear();
        for (int row = 0; row < rows.M; row++) {
            if (!(most_of(row)[panel] >= floors[row])) continue;
            for (int v = 0; v < PANEL; v += W)
                if (largest(load(of(row) + first + v)) >= floors[row])
                    parts.push_back({(const float*)rows.at(row), columns + v, (Floats*)(of(row) + first + v)});
        }
        compute_parts(parts, exact.words);
        for (const Part& part : parts) *part.out += load(exact.bias.data() + first + (part.columns - columns));
    }
};

}  // namespace
