// The step alone, for searches that are written elsewhere.

#pragma once

#include "model.h"

namespace {

// The step alone: log-probabilities of the next token, for a search that is written elsewhere.
template <class Kind> struct Stepping : Computing<Kind>, Steps {
    typedef typename Kind::Kept Kept;
    using Computing<Kind>::m;
    using Computing<Kind>::rows;
    using Computing<Kind>::sources;
    Numbers<Kept> memory;      // (decoder layers, tokens of all sentences, E + F)
    std::vector<Matrix> outputs;   // of each sentence's list, if there are lists
    Numbers<float> logits;     // of rows with lists

    Stepping(Decoder<Kind>& model, Sources read, int threads, Embedding from, Embedding to)
        : Computing<Kind>(model, std::move(read), threads, from, to) {
        const int count = int(sources.starts.size()) - 1;
        memory.resize(checked_product({m.z.decoder_layers, sources.starts[count], m.stored}));
        for (int first = 0, many; first < count; first += many) {
            for (many = 1; first + many < count && sources.starts[first + many + 1] - sources.starts[first] <= 1024;) many++;
            this->encode(first, many, [&](int sentence, size_t l) { return at(sentence, l); });
        }
        outputs.resize(sources.lists.empty() ? 0 : count);
        this->list(0, count, [&](int i) -> Matrix& { return outputs[i]; });
    }

    Kept* at(int sentence, size_t layer) {
        return memory.data() + (int64_t(layer) * sources.starts.back() + sources.starts[sentence]) * m.stored;
    }

    // tokens (M,) of these sentences, each after `length` tokens. blocks[p] (decoder layers, sizes[p], E + F) are keys and
    // values of position p, which row trail[row * length + p] of its step wrote; those of this step go to the last block.
    // out (M, panels of the whole output): what no list names is left as it is. looked (M, longest), unless it is null: the
    // weights that the last layer gave to the source, the mean of its heads, are added to it.
    void step(int M, const int32_t* tokens, const int32_t* sentences, int length, const void* const* blocks,
              const int64_t* sizes, const int32_t* trail, float* out, float* looked, int64_t longest) override {
        check(M, tokens, sentences, length, sizes, trail);
        const bool lists = !outputs.empty();
        const int64_t whole = int64_t(m.output.panels) * PANEL;
        int64_t widest = whole;
        if (lists) {
            widest = 0;
            for (int row = 0; row < M; row++) widest = std::max<int64_t>(widest, outputs[sentences[row]].panels * PANEL);
            if (size_t need = checked_product({M, widest}); logits.size() < need) logits.resize(need);
        }
        float* to = lists ? logits.data() : out;
        int most = length + 1;
        for (int row = 0; row < M; row++) {
            const int n = sources.tokens(sentences[row]);
            if (looked && n > longest) fail("a source of %d tokens does not fit in %lld", n, (long long)longest);
            most = std::max(most, n);
        }
        this->reserve(M, most);
        auto place = [&](int p, size_t l, int row) { return (Kept*)blocks[p] + (int64_t(l) * sizes[p] + row) * m.kept; };
        together(this->threads, [&](Team team) {
            auto [first, last] = team.share(M);
            for (int row = first; row < last; row++) this->embed(this->target, row, tokens[row], length);
            this->decode(
                team, [&](int row, size_t l) { return place(length, l, row); },
                [&](int row, size_t l, std::vector<const Kept*>& seen) {
                    for (int p = 0; p < length; p++) seen.push_back(place(p, l, trail[int64_t(row) * length + p]));
                },
                [&](int row, size_t l, std::vector<const Kept*>& seen) {
                    const Kept* from = at(sentences[row], l);
                    for (int p = 0; p < sources.tokens(sentences[row]); p++) seen.push_back(from + int64_t(p) * m.stored);
                },
                [&](size_t l, int row, int, const float* weights, int n) {
                    if (looked && l + 1 == m.decoder.size())
                        for (int p = 0; p < n; p++) looked[row * longest + p] += weights[p] / float(m.decoder[l].looks);
                });
            auto put = [&](int row, int column, const Floats* y) {
                for (int v = 0; v < PANEL / W; v++) store(to + row * widest + column + v * W, y[v]);
            };
            if (!lists) multiply<Kind>(m.output, rows, team, put);
            for (int row = 0, end; row < M && lists; row = end) {  // rows of a sentence lie together, as far as they do
                for (end = row + 1; end < M && sentences[end] == sentences[row];) end++;
                multiply<Kind>(outputs[sentences[row]], rows, team, put, row, end, 1);
            }
            team.wait();
            for (int row = first; row < last; row++) {
                const Matrix& output = lists ? outputs[sentences[row]] : m.output;
                float* values = to + row * widest;
                log_softmax(values, output.panels * PANEL);
                if (!lists) continue;
                const int* list = sources.list(sentences[row]);
                for (int i = 0; i < output.N; i++) out[row * whole + list[i]] = values[i];
            }
        });
    }

    void check(int M, const int32_t* tokens, const int32_t* sentences, int length, const int64_t* sizes,
               const int32_t* trail) const {
        if (M < 0 || length < 0 || sizes[length] < M) fail("a step of %d rows after %d tokens", M, length);
        this->target.check_length("target", length + 1);
        for (int row = 0; row < M; row++) {
            this->target.check("target", tokens[row]);
            if (sentences[row] < 0 || sentences[row] >= sources.count())
                fail("row %d is of sentence %d, and there are %d", row, sentences[row], sources.count());
            for (int p = 0; p < length; p++)
                if (int from = trail[int64_t(row) * length + p]; from < 0 || from >= sizes[p])
                    fail("row %d was written by row %d of position %d, which has %lld", row, from, p, (long long)sizes[p]);
        }
    }

    static void log_softmax(float* values, int n) {
        Floats most = load(values), total{};
        for (int i = W; i < n; i += W) most = larger(most, load(values + i));
        const float peak = largest(most);
        for (int i = 0; i < n; i += W) total += exponential(load(values + i) - peak);
        const float normaliser = peak + std::log(sum(total));
        for (int i = 0; i < n; i += W) store(values + i, load(values + i) - normaliser);
    }
};

template <class Kind>
std::unique_ptr<Steps> Decoder<Kind>::steps(Sources sources, int threads, Embedding source, Embedding target) {
    return std::make_unique<Stepping<Kind>>(*this, std::move(sources), threads, source, target);
}

}  // namespace
