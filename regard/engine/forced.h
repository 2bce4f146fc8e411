// Forced decoding: a model is made to write given targets, all positions of a sentence at once, and says how likely each
// token is and where it looks. Held equal by tests to tasks/forced.py in PyTorch.

#pragma once

#include <cmath>

#include "model.h"

namespace {

constexpr int MOST_ROWS = 1024;  // tokens of either side that are worked on together, unless one sentence has more

template <class Kind> struct Forced : Computing<Kind> {
    typedef typename Kind::Kept Kept;
    using Computing<Kind>::m;
    using Computing<Kind>::rows;
    using Computing<Kind>::sources;
    using Computing<Kind>::kept;
    const Forcing& asked;
    std::vector<int> slots;             // of each decoder layer, its number among those asked for, or -1
    std::vector<int64_t> places;        // where each sentence's weights begin
    std::vector<int> owner;             // of each row, its sentence
    std::vector<Kept> memory;           // (decoder layers, source tokens of some sentences, E + F)
    struct Part { float peak, sum; };   // of a panel of a row's outputs: the largest, and the sum of e^(output - peak)
    std::vector<Part> parts;            // (rows, panels), so that no sum depends on who has which part
    std::vector<float> chosen;          // the output of each row's wanted token

    Forced(Decoder<Kind>& model, Sources read, const Forcing& forcing, int threads, Embedding from, Embedding to)
        : Computing<Kind>(model, std::move(read), threads, from, to), asked(forcing), slots(model.z.decoder_layers, -1) {
        const int count = sources.count();
        this->in_order = true;
        Sources::check_starts(asked.starts, count, 1);
        if (!(asked.temperature > 0.0) || !std::isfinite(asked.temperature)) fail("temperature %g", asked.temperature);
        for (int i = 0; i < asked.layer_count; i++) {
            if (asked.layers[i] < 0 || asked.layers[i] >= m.z.decoder_layers)
                fail("layer %d is asked for, and there are %lld", asked.layers[i], (long long)m.z.decoder_layers);
            slots[asked.layers[i]] = i;
        }
        for (int64_t row = 0; row < asked.starts[count]; row++) {
            this->target.check("target", asked.tokens[row]);
            if (asked.wanted[row] < 0 || asked.wanted[row] >= m.z.vocabulary)
                fail("target token %d is outside of the vocabulary of %lld", asked.wanted[row], (long long)m.z.vocabulary);
        }
        places.assign(1, 0);
        for (int i = 0; i < count; i++) {
            this->target.check_length("target", tokens(i));
            places.push_back(places[i] + int64_t(asked.layer_count) * m.z.heads * tokens(i) * sources.tokens(i));
        }
    }

    int tokens(int sentence) const { return int(asked.starts[sentence + 1] - asked.starts[sentence]); }

    void run() {
        auto few = [](const int64_t* starts, int first, int end) { return starts[end] - starts[first] <= MOST_ROWS; };
        for (int first = 0, end; first < sources.count(); first = end) {
            for (end = first + 1; end < sources.count();) {
                if (!few(sources.starts.data(), first, end + 1) || !few(asked.starts, first, end + 1)) break;
                end++;
            }
            decode_some(first, end);
        }
    }

    // The sentences from `first` to before `end`.
    void decode_some(int first, int end) {
        const int64_t from = asked.starts[first], read = sources.starts[end] - sources.starts[first];
        const int M = int(asked.starts[end] - from);
        memory.resize(checked_product({m.z.decoder_layers, read, m.stored}));
        auto remembered = [&](int sentence, size_t l) {
            return memory.data() + (int64_t(l) * read + sources.starts[sentence] - sources.starts[first]) * m.stored;
        };
        this->encode(first, end - first, remembered);
        int most = 0;
        owner.clear();
        for (int i = first; i < end; i++) {
            most = std::max({most, tokens(i), sources.tokens(i)});
            owner.insert(owner.end(), tokens(i), i);
        }
        this->reserve(M, most);
        if (kept.size() < size_t(M) * m.stored) kept.resize(size_t(M) * m.stored);
        if (asked.scores) parts.resize(checked_product({M, m.output.panels})), chosen.resize(M);
        auto own = [&](int row, size_t) { return kept.data() + int64_t(row) * m.stored; };  // of one layer after the other
        auto start = [&](int row) { return int(asked.starts[owner[row]] - from); };
        together(this->threads, [&](Team team) {
            team.each(M, [&](int64_t row) { this->embed(this->target, int(row), asked.tokens[from + row], int(row) - start(int(row))); });
            this->decode(
                team, own,
                [&](int row, size_t l, std::vector<const Kept*>& at) {
                    for (int p = start(row); p < row; p++) at.push_back(own(p, l));
                },
                [&](int row, size_t l, std::vector<const Kept*>& at) {
                    const Kept* keys = remembered(owner[row], l);
                    for (int p = 0; p < sources.tokens(owner[row]); p++) at.push_back(keys + int64_t(p) * m.stored);
                },
                [&](size_t l, int row, int head, const float* weights, int n) {
                    if (slots[l] < 0) return;
                    const int64_t line = (int64_t(slots[l]) * m.z.heads + head) * tokens(owner[row]) + row - start(row);
                    float* to = asked.weights + places[owner[row]] + line * n;
                    for (int p = 0; p < n; p++) to[p] = weights[p];
                });
            if (asked.scores) score(team, from);
        });
    }

    // Log-probabilities of the wanted tokens from `from` on.
    void score(Team& team, int64_t from) {
        const int panels = m.output.panels;
        const float coldness = float(1.0 / asked.temperature);
        multiply<Kind>(m.output, rows, team, [&](int row, int column, const Floats* y) {
            Floats z[PANEL / W], total{};
            for (int v = 0; v < PANEL / W; v++) z[v] = y[v] * coldness;
            const float peak = largest(larger(larger(z[0], z[1]), larger(z[2], z[3])));
            for (int v = 0; v < PANEL / W; v++) total += exponential(z[v] - peak);
            parts[int64_t(row) * panels + column / PANEL] = {peak, sum(total)};
            if (int i = asked.wanted[from + row] - column; i >= 0 && i < PANEL) chosen[row] = z[i / W][i % W];
        });
        team.wait();
        team.each(rows.M, [&](int64_t row) {
            const Part* part = parts.data() + row * panels;
            float peak = LOWEST;
            for (int i = 0; i < panels; i++) peak = std::max(peak, part[i].peak);
            double total = 0.0;
            for (int i = 0; i < panels; i++) total += part[i].sum * std::exp(double(part[i].peak - peak));
            asked.scores[from + row] = double(chosen[row]) - peak - std::log(total);
        });
    }
};

template <class Kind>
void Decoder<Kind>::force(Sources sources, const Forcing& asked, int threads, Embedding source, Embedding target) {
    Forced<Kind>(*this, std::move(sources), asked, threads, source, target).run();
}

}  // namespace
