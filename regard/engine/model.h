// A Transformer as it is packed for decoding, and what is computed with it for some rows at a time.
//
// Sizes: M rows, D width, E and F widths of all heads' keys and values.

#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "layers.h"
#include "matrix.h"
#include "screen.h"

namespace {

constexpr int MOST_THREADS = 4096;

struct Sizes {  // in the order in which decoding.py hands them over
    int64_t width, heads, key_width, value_width, inner, encoder_layers, decoder_layers, vocabulary, activation, pre_norm;
    int64_t features;  // of the width, without the zeros that fill it up
    int64_t turned;    // whether positions turn queries and keys, and are not added to embeddings

    // Sizes that can be counted in int wherever one is multiplied with another of a layer.
    void check() const {
        constexpr int64_t MOST = 1 << 24;
        auto within = [](const char* name, int64_t size, int64_t unit) {
            if (size < 1 || size > MOST || size % unit)
                fail("the model's %s is %lld; it must be a multiple of %lld, from 1 to %lld", name, (long long)size,
                     (long long)unit, (long long)MOST);
        };
        within("width", width, W), within("inner width", inner, W), within("vocabulary", vocabulary, 1);
        within("key width", key_width, W), within("value width", value_width, W), within("number of heads", heads, 1);
        within("width of all keys", heads * key_width, W), within("width of all values", heads * value_width, W);
        within("number of encoder layers", encoder_layers, 1), within("number of decoder layers", decoder_layers, 1);
        if (features > width || features <= width - W)
            fail("%lld features cannot fill a width of %lld", (long long)features, (long long)width);
        if (activation < RELU || activation > SILU) fail("activation %lld is not known", (long long)activation);
    }
};

struct Layer {
    int heads, looks;  // of the attention to its own side (0: an SSRU, whose gates are `attention`), and to the source
    Matrix attention, attended, query, memory, looked, inner, outer;  // encoder layers have no query, memory and looked
    std::vector<Norm> norms;
};

struct Embedding {  // of one side; positions may be null
    const void* table;        // float32; with row_scales whole numbers in a byte; null: the columns of the output
    const float* row_scales;  // of the table's rows, or null
    float scale;
    const float* positions;  // (longest, D); or the cosines and signed sines that turn a head's features, (longest, 2 dk)
    int64_t rows, longest;   // of the table, and of the positions

    void check(const char* side, int64_t id) const {
        if (id < 0 || id >= rows)
            fail("%s token %lld is outside of the table of %lld", side, (long long)id, (long long)rows);
    }
    // From dimension d on, sixteen numbers of a token's row.
    Floats load(int64_t token, int64_t D, int d) const {
        if (!row_scales) return ::load((const float*)table + token * D + d) * scale;
        return __builtin_convertvector(*(const SignedBytes*)((const int8_t*)table + token * D + d), Floats) * row_scales[token] * scale;
    }
    void check_length(const char* side, int64_t length) const {
        if (length < 1 || (positions && length > longest))
            fail("a %s of %lld tokens is outside of the %lld positions", side, (long long)length, (long long)longest);
    }
};

struct Hypothesis {
    std::vector<int> ids;
    double total, score;
    bool ended;
};

struct Settings {  // in the order in which decoding.py hands them over
    int64_t width, n_best, batch, stop, begin, end, shares, threads;
    // shares: of a row's outputs, each with a sum of its own, whatever the number of threads that work on them.
    int64_t minimum, no_repeat;  // shortest output, its end counted; how many tokens in a row may not come again, or 0
};

struct Search {
    virtual ~Search() {}
    virtual int go_on(std::chrono::nanoseconds time) = 0;
    virtual const std::vector<Hypothesis>& found(int sentence) const = 0;
};

struct Steps {
    virtual ~Steps() {}
    virtual void step(int M, const int32_t* tokens, const int32_t* sentences, int length, const void* const* blocks,
                      const int64_t* sizes, const int32_t* trail, float* out, float* looked, int64_t longest) = 0;
};

// What a model is made to write: of each target, end to end, the tokens it reads and those that should come.
struct Forcing {
    const int32_t *tokens, *wanted;
    const int64_t* starts;
    double temperature;
    double* scores;         // of each wanted token its log-probability; null: none
    const int32_t* layers;  // whose weights are asked for
    int layer_count;
    float* weights;         // of each target (layers, most heads, its tokens, its source's), end to end
};

// What is translated: ids of all sentences, end to end, and the tokens that each may become, if that is limited.
struct Sources {
    std::vector<int> ids, listed;
    std::vector<int64_t> starts, lists;  // one more than there are sentences; lists: none if all tokens are searched

    Sources(int count, const int32_t* ids, const int64_t* starts, const int32_t* listed, const int64_t* lists)
        : starts(starts, starts + count + 1) {
        check_starts(starts, count, 1);
        this->ids.assign(ids, ids + starts[count]);
        if (!lists) return;
        check_starts(lists, count, 1);
        this->listed.assign(listed, listed + lists[count]), this->lists.assign(lists, lists + count + 1);
    }
    int count() const { return int(starts.size()) - 1; }

    // Whether a model can read all of it, and write what the lists name.
    void check(const Embedding& source, int64_t vocabulary) const {
        for (int id : ids) source.check("source", id);
        for (int i = 0; i < count(); i++) source.check_length("source", tokens(i));
        for (int id : listed)
            if (id < 0 || id >= vocabulary)
                fail("token %d of a list is outside of the vocabulary of %lld", id, (long long)vocabulary);
    }
    static void check_starts(const int64_t* starts, int count, int64_t least) {
        if (starts[0] != 0) fail("the first of several rows begins at %lld, not at 0", (long long)starts[0]);
        for (int i = 0; i < count; i++)
            if (starts[i + 1] - starts[i] < least || starts[i + 1] > INT32_MAX)
                fail("row %d of %d ends at %lld and begins at %lld", i, count, (long long)starts[i + 1], (long long)starts[i]);
    }
    int tokens(int sentence) const { return int(starts[sentence + 1] - starts[sentence]); }
    const int* list(int sentence) const { return listed.data() + lists[sentence]; }
    int listed_in(int sentence) const { return int(lists[sentence + 1] - lists[sentence]); }
};

// A matrix and its bias, or a norm's gain and bias. With a scale for each row the matrix is in whole numbers of a byte.
struct Tensors {
    const void* first;
    const float *second, *scale;
    int64_t first_size, second_size, scale_size;
};

struct Model {
    virtual ~Model() {}
    // The next tensors, in the order of the constructor of Decoder.
    virtual void add(const Tensors& given) = 0;
    // This model with another matrix in the place of pair `number`, below 0 counted from the end; they share the rest.
    virtual std::unique_ptr<Model> with(int64_t number, const Tensors& given) const = 0;
    virtual std::unique_ptr<Search> search(Sources sources, const int32_t* limits, const double* penalties, int lengths,
                                           Settings settings, Embedding source, Embedding target) = 0;
    virtual std::unique_ptr<Steps> steps(Sources sources, int threads, Embedding source, Embedding target) = 0;
    virtual void force(Sources sources, const Forcing& asked, int threads, Embedding source, Embedding target) = 0;
};

template <class Kind> struct Decoder : Model {
    Sizes z;
    float epsilon;
    std::vector<Layer> encoder, decoder;
    std::vector<Norm> final_norms;  // of encoder and decoder; none after post-norm layers
    Matrix output;
    Block columns;  // of the output, for lists; made when they are first asked for
    std::once_flag made, screened;
    Screen<Kind> screen;  // of the output, for searches; made when one first begins
    int widest;       // words of the longest row
    int kept, stored;  // keys and values of a position, or an SSRU's cells; and how far apart the decoder stores them

    struct Slot { Matrix* matrix; int N, K; float padding; std::vector<Norm>* norms; };
    std::vector<Slot> slots;  // where the pairs belong
    size_t filled = 0;

    // heads: of each encoder layer, then of each decoder layer those to its own side, then those to the source.
    Decoder(const Sizes& sizes, const int64_t* heads, float eps) : z(sizes), epsilon(eps) {
        z.check();
        const int D = z.width, E = z.heads * z.key_width, F = z.heads * z.value_width, I = z.inner;
        const int dk = int(z.key_width), dv = int(z.value_width);
        encoder.resize(z.encoder_layers), decoder.resize(z.decoder_layers);
        slots.push_back({&output, int(z.vocabulary), D, LOWEST, nullptr});  // first, so that a table it is packed from can be freed
        for (int64_t i = 0; i < z.encoder_layers + 2 * z.decoder_layers; i++) {
            const bool own = i >= z.encoder_layers && i < z.encoder_layers + z.decoder_layers;  // a decoder layer's own side
            if (const int64_t least = own ? 0 : 1; heads[i] < least || heads[i] > z.heads)
                fail("an attention has %lld heads; from %lld to %lld are possible", (long long)heads[i], (long long)least, (long long)z.heads);
        }
        for (auto* stack : {&encoder, &decoder}) {
            for (Layer& layer : *stack) {
                const Slot norm{nullptr, 0, 0, 0, &layer.norms};
                const int own = layer.heads = int(*heads), other = layer.looks = stack == &decoder ? int(heads[z.decoder_layers]) : 0;
                heads++;
                slots.push_back({&layer.attention, own ? own * (2 * dk + dv) : 2 * D, D, 0, nullptr});
                if (own) slots.push_back({&layer.attended, D, own * dv, 0, nullptr});
                slots.push_back(norm);
                if (stack == &decoder)
                    slots.insert(slots.end(), {{&layer.query, other * dk, D, 0, nullptr}, {&layer.memory, other * (dk + dv), D, 0, nullptr},
                                               {&layer.looked, D, other * dv, 0, nullptr}, norm});
                slots.insert(slots.end(), {{&layer.inner, I, D, 0, nullptr}, {&layer.outer, D, I, 0, nullptr}, norm});
            }
            if (z.pre_norm) slots.push_back({nullptr, 0, 0, 0, &final_norms});
        }
        widest = std::max({2 * D, E, F, I}), kept = std::max(E + F, D);
        stored = kept + 64 / int(sizeof(typename Kind::Kept));  // what lies a power of two apart shares a place in the cache
    }

    void add(const Tensors& given) override {
        if (filled == slots.size()) fail("the model has only %zu pairs of tensors", slots.size());
        const Slot& slot = slots[filled];
        const int64_t one = slot.matrix ? int64_t(slot.N) * slot.K : z.width, other = slot.matrix ? slot.N : z.width;
        if (given.first_size != one || (given.second ? given.second_size != other : !slot.matrix))
            fail("pair %zu of tensors has %lld and %lld numbers, not %lld and %lld", filled, (long long)given.first_size,
                 (long long)given.second_size, (long long)one, (long long)other);
        if (given.scale && (!slot.matrix || Kind::PER_WORD != 4 || given.scale_size != slot.N))
            fail("pair %zu of tensors cannot be in whole numbers with %lld scales", filled, (long long)given.scale_size);
        filled++;
        const auto* first = (const float*)given.first;
        if (!slot.matrix) slot.norms->push_back({first, given.second});
        else if (given.scale) pack_whole(*slot.matrix, slot.N, slot.K, (const int8_t*)given.first, given.scale, given.second, slot.padding);
        else pack<Kind>(*slot.matrix, slot.N, slot.K, first, given.second, slot.padding);
    }

    std::unique_ptr<Model> with(int64_t number, const Tensors& given) const override {
        const int64_t count = int64_t(slots.size()), at = number < 0 ? count + number : number;
        if (filled != slots.size()) fail("the model has %zu of its %zu pairs of tensors", filled, slots.size());
        if (at < 0 || at >= count) fail("there is no pair %lld of tensors among %lld", (long long)number, (long long)count);
        if (!slots[at].matrix) fail("pair %lld of tensors is a norm, and only matrices are replaced", (long long)number);
        if (slots[at].matrix == &output) fail("pair %lld of tensors is the output, which may be the table of embeddings too", (long long)number);
        std::vector<int64_t> heads;
        for (const Layer& layer : encoder) heads.push_back(layer.heads);
        for (const Layer& layer : decoder) heads.push_back(layer.heads);
        for (const Layer& layer : decoder) heads.push_back(layer.looks);
        auto made = std::make_unique<Decoder>(z, heads.data(), epsilon);  // its slots lead to its own matrices
        made->encoder = encoder, made->decoder = decoder, made->final_norms = final_norms, made->output = output;
        made->filled = size_t(at);
        made->add(given);  // into memory of its own
        made->filled = slots.size();
        return made;
    }

    std::unique_ptr<Search> search(Sources sources, const int32_t* limits, const double* penalties, int lengths,
                                   Settings settings, Embedding source, Embedding target) override;
    std::unique_ptr<Steps> steps(Sources sources, int threads, Embedding source, Embedding target) override;
    void force(Sources sources, const Forcing& asked, int threads, Embedding source, Embedding target) override;
};

// What is computed with, for M rows: x (M, D); y, queries or the feed-forward network's inside; rows of products.
template <class Kind> struct Computing {
    typedef typename Kind::Kept Kept;
    Decoder<Kind>& m;
    Sources sources;
    int threads;
    Embedding source, target;
    Rows rows;
    Numbers<float> x, y;
    std::vector<int> positions;  // of the rows of x
    bool in_order = false;       // whether rows are positions of one another, later ones below
    Numbers<Kept> kept;          // keys and values of encoder rows

    struct Scratch {  // of one thread; made before the threads begin, which must not run out of memory alone
        std::vector<const Kept*> at;
        Numbers<float> out, weights;
    };
    std::vector<Scratch> scratch;

    Computing(Decoder<Kind>& model, Sources read, int team, Embedding from, Embedding to)
        : m(model), sources(std::move(read)), threads(team), source(from), target(to) {
        if (threads < 1 || threads > MOST_THREADS) fail("%d threads; from 1 to %d are possible", threads, MOST_THREADS);
        if (m.filled != m.slots.size()) fail("the model has %zu of its %zu pairs of tensors", m.filled, m.slots.size());
        for (const Embedding* words : {&source, &target})
            if (!words->table && (Kind::PER_WORD == 2 || words->rows > m.z.vocabulary))
                fail("a table of %lld rows cannot be read from the output's %lld columns", (long long)words->rows, (long long)m.z.vocabulary);
        if (m.z.turned && !(source.positions && target.positions)) fail("positions turn this model's keys, and there are none");
        sources.check(source, m.z.vocabulary);
        target.check("target", m.z.vocabulary - 1);
        scratch.resize(threads);
        if (!sources.lists.empty()) std::call_once(m.made, [&] { m.columns = unpacked(m.output); });
    }

    // For M rows, each of which looks at no more than `most` positions.
    void reserve(int M, int most) {
        for (Scratch& one : scratch) {
            one.at.reserve(most), one.out.resize(m.z.heads * m.z.value_width);
            if (size_t need = size_t(m.z.heads) * (most + W); one.weights.size() < need) one.weights.resize(2 * need);
        }
        rows.reserve(M, words_of<Kind>(m.widest));
        if (positions.size() < size_t(M)) positions.resize(M);
        if (size_t need = size_t(M) * (m.z.width + W); x.size() < need) x.resize(need);
        if (size_t need = size_t(M) * (m.widest + W); y.size() < need) y.resize(need);
    }

    // A row of x, and one of y. Rows that lie a power of two apart would share a few places in the cache.
    float* x_of(int row) { return x.data() + int64_t(row) * (m.z.width + W); }
    float* y_of(int row) { return y.data() + int64_t(row) * (m.widest + W); }

    // Where a model's table is its output matrix, it is in memory once.
    Floats of_output(int token, int d) const {
        if constexpr (Kind::PER_WORD == 2) return Floats{};  // refused above: its output is rounded
        else return load_packed<Kind>(m.output, token, d);
    }

    void embed(const Embedding& words, int row, int token, int position) {
        const int D = m.z.width;
        const float* added = m.z.turned || !words.positions ? nullptr : words.positions + int64_t(position) * D;
        positions[row] = position;
        for (int d = 0; d < D; d += W) {
            Floats v = words.table ? words.load(token, D, d) : of_output(token, d) * words.scale;
            store(x_of(row) + d, added ? v + load(added + d) : v);
        }
    }

    // Sixteen features of a query or a key, of which each pair is turned by the row's position.
    Floats turned(Floats v, const Embedding& words, int row, int at) const {
        const int dk = int(m.z.key_width);
        const float* by = words.positions + int64_t(positions[row]) * 2 * dk + at % dk;
        return v * load(by) + __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14) * load(by + dk);
    }

    // After a sub-layer (norms[i] is its own): post-norm replaces x, pre-norm reads x through the next one's norm.
    void norm_row(int row, const Norm* norm) {
        const int D = m.z.width;
        float* from = x_of(row);
        float* to = m.z.pre_norm ? y_of(row) : from;
        if (norm) normalise(from, to, D, int(m.z.features), *norm, m.epsilon);
        prepare<Kind>(rows, row, norm ? to : from, D);
    }

    void norm_all(Team& team, const Norm* norm) {
        team.wait();
        auto [first, last] = team.share(rows.M);
        for (int row = first; row < last; row++) norm_row(row, norm);
        team.wait();
    }

    void add_to_x(const Matrix& matrix, Team& team) {
        const int D = m.z.width;
        multiply<Kind>(matrix, rows, team, [&](int row, int column, const Floats* out) {
            for (int v = 0; v < PANEL / W && column + v * W < D; v++) {
                float* to = x_of(row) + column + v * W;
                store(to, load(to) + out[v]);
            }
        });
    }

    // Queries to y (M, E); keys and values to where place(row) says. Columns before `split` are queries. Of a side's
    // attention to itself, whose words are given, as many columns of keys follow; both are turned where positions do that.
    template <class Place> void project(const Matrix& matrix, int split, Team& team, Place place, const Embedding* words = nullptr) {
        const int turning = words && m.z.turned ? 2 * split : 0;
        multiply<Kind>(matrix, rows, team, [&](int row, int column, const Floats* out) {
            for (int v = 0; v < PANEL / W && column + v * W < matrix.N; v++) {
                int at = column + v * W;
                const Floats found = at < turning ? turned(out[v], *words, row, at) : out[v];
                if (at < split) store(y_of(row) + at, found);
                else store(place(row) + at - split, found);
            }
        });
    }

    // Each row's query over its positions; `sees` fills in where they are. look(row, head, weights, n) is shown the
    // weights of the n positions.
    template <class Sees, class Look> void attend(Team& team, int heads, Sees sees, Look look) {
        const int F = heads * int(m.z.value_width);
        team.wait();
        auto& [at, out, weights] = scratch[team.id];
        auto [first, last] = team.share(rows.M);
        for (int row = first; row < last; row++) {
            at.clear();
            sees(row, at);
            const int n = int(at.size()), dk = m.z.key_width, dv = m.z.value_width;
            auto see = [&](int head, const float* weights) { look(row, head, weights, n); };
            auto attending = dk == 64 && dv == 64 ? attend_one<64, Kept, decltype(see)> : attend_one<0, Kept, decltype(see)>;
            attending(y_of(row), heads, dk, dv, n, at.data(), out.data(), weights.data(), see);
            prepare<Kind>(rows, row, out.data(), F);
        }
        team.wait();
    }

    template <class Sees> void attend(Team& team, int heads, Sees sees) {
        attend(team, heads, sees, [](int, int, const float*, int) {});
    }

    // An SSRU from the cells of each row's last position, which `wrote` fills in last, to those at own(row), and to x.
    template <class Own, class Wrote> void recur(const Layer& layer, size_t l, Team& team, Own own, Wrote wrote) {
        const int D = m.z.width;
        project(layer.attention, 2 * D, team, [](int) { return (Kept*)nullptr; });
        team.wait();
        auto& at = scratch[team.id].at;
        auto [first, last] = in_order ? std::pair<int, int>(0, team.id ? 0 : rows.M) : std::pair<int, int>(team.share(rows.M));
        for (int row = first; row < last; row++) {
            at.clear();
            wrote(row, l, at);
            Kept* to = own(row, l);
            for (int d = 0; d < D; d += W) {
                const Floats gate = sigmoid(load(y_of(row) + d));
                Floats cells = (1.0f - gate) * load(y_of(row) + D + d);
                if (!at.empty()) cells += gate * load(at.back() + d);
                store(to + d, cells);
                store(x_of(row) + d, load(x_of(row) + d) + larger(cells, all(0.0f)));
            }
        }
    }

    void feed_forward(const Layer& layer, Team& team) {
        multiply<Kind>(layer.inner, rows, team, [&](int row, int column, const Floats* out) {
            for (int v = 0; v < PANEL / W && column + v * W < m.z.inner; v++)
                store(y_of(row) + column + v * W, activate(out[v], m.z.activation));
        });
        team.wait();
        auto [first, last] = team.share(rows.M);
        for (int row = first; row < last; row++) prepare<Kind>(rows, row, y_of(row), m.z.inner);
        team.wait();
        add_to_x(layer.outer, team);
    }

    // The norm that comes after sub-layer i of a layer: its own, or with pre-norm the following one's.
    const Norm* norm_after(const std::vector<Layer>& stack, int side, size_t layer, size_t i) const {
        if (!m.z.pre_norm) return &stack[layer].norms[i];
        if (i + 1 < stack[layer].norms.size()) return &stack[layer].norms[i + 1];
        return layer + 1 < stack.size() ? &stack[layer + 1].norms[0] : &m.final_norms[side];
    }

    // Encodes sentences `first` and on. memory(sentence, layer) is where its keys and values for a decoder layer go.
    template <class Memory> void encode(int first, int count, Memory memory) {
        const int64_t from = sources.starts[first];
        const int M = int(sources.starts[first + count] - from), dk = int(m.z.key_width);
        int most = 0;
        for (int i = first; i < first + count; i++) most = std::max(most, sources.tokens(i));
        reserve(M, most);
        if (kept.size() < size_t(M) * m.stored) kept.resize(size_t(M) * m.stored);
        std::vector<int> owner(M);
        for (int i = first; i < first + count; i++)
            std::fill_n(owner.begin() + (sources.starts[i] - from), sources.tokens(i), i);
        auto start = [&](int row) { return int(sources.starts[owner[row]] - from); };
        together(threads, [&](Team team) {
            auto [begin, end] = team.share(M);
            for (int row = begin; row < end; row++) embed(source, row, sources.ids[from + row], row - start(row));
            norm_all(team, m.z.pre_norm ? &m.encoder[0].norms[0] : nullptr);
            for (size_t l = 0; l < m.encoder.size(); l++) {
                const Layer& layer = m.encoder[l];
                project(layer.attention, layer.heads * dk, team, [&](int row) { return kept.data() + int64_t(row) * m.stored; }, &source);
                attend(team, layer.heads, [&](int row, std::vector<const Kept*>& at) {
                    for (int p = 0; p < sources.tokens(owner[row]); p++)
                        at.push_back(kept.data() + int64_t(start(row) + p) * m.stored);
                });
                add_to_x(layer.attended, team);
                norm_all(team, norm_after(m.encoder, 0, l, 0));
                feed_forward(layer, team);
                norm_all(team, norm_after(m.encoder, 0, l, 1));
            }
            for (size_t l = 0; l < m.decoder.size(); l++)
                project(m.decoder[l].memory, 0, team, [&](int row) {
                    return memory(owner[row], l) + int64_t(row - start(row)) * m.stored;
                });
        });
    }

    // Makes output(i), the part of the output for the list of sentence first + i.
    template <class Output> void list(int first, int count, Output output) {
        if (sources.lists.empty()) return;
        for (int i = 0; i < count; i++) output(i).size(sources.listed_in(first + i), m.z.width, m.output.words, LOWEST);
        together(threads, [&](Team team) {
            for (int i = 0; i < count; i++)
                take(m.output, (const int32_t*)m.columns.get(), sources.list(first + i), output(i), team);
        });
    }

    // One step through all layers, of rows that are embedded. own(row, layer) is where a row's keys and values go;
    // wrote(row, layer, at) and reads(row, layer, at) fill in where those of its positions so far and of its source are.
    // look(layer, row, head, weights, n) is shown how it weighs the source; see attend.
    template <class Own, class Wrote, class Reads, class Look>
    void decode(Team& team, Own own, Wrote wrote, Reads reads, Look look) {
        const int dk = int(m.z.key_width);
        norm_all(team, m.z.pre_norm ? &m.decoder[0].norms[0] : nullptr);
        for (size_t l = 0; l < m.decoder.size(); l++) {
            const Layer& layer = m.decoder[l];
            if (layer.heads) {
                project(layer.attention, layer.heads * dk, team, [&](int row) { return own(row, l); }, &target);
                attend(team, layer.heads, [&](int row, std::vector<const Kept*>& at) {
                    wrote(row, l, at);
                    at.push_back(own(row, l));
                });
                add_to_x(layer.attended, team);
            } else recur(layer, l, team, own, wrote);
            norm_all(team, norm_after(m.decoder, 1, l, 0));
            project(layer.query, layer.looks * dk, team, [](int) { return (Kept*)nullptr; });
            attend(
                team, layer.looks, [&](int row, std::vector<const Kept*>& at) { reads(row, l, at); },
                [&](int row, int head, const float* weights, int n) { look(l, row, head, weights, n); });
            add_to_x(layer.looked, team);
            norm_all(team, norm_after(m.decoder, 1, l, 1));
            feed_forward(layer, team);
            norm_all(team, norm_after(m.decoder, 1, l, 2));
        }
    }
    template <class Own, class Wrote, class Reads> void decode(Team& team, Own own, Wrote wrote, Reads reads) {
        decode(team, own, wrote, reads, [](size_t, int, int, const float*, int) {});
    }
};

}  // namespace
