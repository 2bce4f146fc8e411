// A Transformer that translates on a CPU: encoder, decoder and beam search, one call a step of the whole batch; or the
// step alone, for the searches that are written elsewhere; or targets that are given, to say how likely they are.
//
// Weights are packed once, in one of three kinds (float32, bfloat16, int8). Every row's numbers come from that row alone,
// summed in an order that no neighbour changes, so a sentence's translation is the same, bit for bit, whatever it is
// translated with. Held equal by tests to the model's page and to search/beam.py. Where an entry fails it returns null or
// a number below 0, and `error_message()` says why.

#include "forced.h"
#include "search.h"
#include "steps.h"

namespace {

// What `make` returns; null if it throws.
template <class Make> void* made(Make make) {
    void* found = nullptr;
    guarded([&] { return found = make(), 0; });
    return found;
}

Sources sources_of(int count, const int32_t* ids, const int64_t* starts, const int32_t* listed, const int64_t* lists) {
    if (count < 1) fail("%d sentences", count);
    return {count, ids, starts, listed, lists};
}

// Tables and positions are read where they lie: two of each, of the source and of the target; positions may be null.
struct Tables {
    const void* tables[2];
    const float* row_scales[2];
    const float* positions[2];
    int64_t rows[2], longest[2];
    float scales[2];

    Embedding of(int side) const { return {tables[side], row_scales[side], scales[side], positions[side], rows[side], longest[side]}; }
};

}  // namespace

ENTRY(void*, decoder_new)(int kind, const int64_t* sizes, const int64_t* heads, float epsilon) {
    return made([&]() -> Model* {
        Sizes z; std::memcpy(&z, sizes, sizeof z);
        if (kind == 0) return new Decoder<Float32>(z, heads, epsilon);
        if (kind == 1) return new Decoder<Bfloat16>(z, heads, epsilon);
        return new Decoder<Int8>(z, heads, epsilon);
    });
}
ENTRY(int64_t, decoder_add)(void* model, const void* first, int64_t first_size, const float* second, int64_t second_size,
                   const float* scale, int64_t scale_size) {
    return guarded([&] { return ((Model*)model)->add({first, second, scale, first_size, second_size, scale_size}), 0; });
}
// A model with another matrix in the place of one; the rest is shared, and the first may be freed before it or after it.
ENTRY(void*, decoder_with)(void* model, int64_t number, const void* first, int64_t first_size, const float* second,
                           int64_t second_size, const float* scale, int64_t scale_size) {
    return made([&] {
        return ((Model*)model)->with(number, {first, second, scale, first_size, second_size, scale_size}).release();
    });
}
ENTRY(void, decoder_free)(void* model) { delete (Model*)model; }

// Lists of tokens may be null.
ENTRY(void*, search_new)(void* model, int count, const int32_t* ids, const int64_t* starts, const int32_t* listed,
                 const int64_t* lists, const Tables* tables, const int32_t* limits, const double* penalties, int lengths,
                 const int64_t* settings) {
    return made([&] {
        Settings s; std::memcpy(&s, settings, sizeof s);
        Sources sources = sources_of(count, ids, starts, listed, lists);
        return ((Model*)model)->search(std::move(sources), limits, penalties, lengths, s, tables->of(0), tables->of(1)).release();
    });
}
// How many sentences are done. It returns now and then, so that its caller can be interrupted, but not for each token:
// where other threads of the interpreter run, each return would cost a turn of theirs.
ENTRY(int64_t, search_go_on)(void* search) {
    return guarded([&] { return ((Search*)search)->go_on(std::chrono::milliseconds(20)); });
}
ENTRY(void, search_free)(void* search) { delete (Search*)search; }

// How many hypotheses a sentence has; and one of them: its length, ids, total and score, and whether it ended by itself.
ENTRY(int64_t, search_found)(void* search, int sentence) { return int64_t(((Search*)search)->found(sentence).size()); }
ENTRY(int64_t, search_get)(void* search, int sentence, int rank, int32_t* ids, double* scores, int32_t* ended) {
    const Hypothesis& h = ((Search*)search)->found(sentence)[rank];
    std::copy(h.ids.begin(), h.ids.end(), ids);
    scores[0] = h.total, scores[1] = h.score, *ended = h.ended;
    return int64_t(h.ids.size());
}

ENTRY(void*, steps_new)(void* model, int count, const int32_t* ids, const int64_t* starts, const int32_t* listed,
                const int64_t* lists, const Tables* tables, int threads) {
    return made([&] {
        Sources sources = sources_of(count, ids, starts, listed, lists);
        return ((Model*)model)->steps(std::move(sources), threads, tables->of(0), tables->of(1)).release();
    });
}
ENTRY(int64_t, steps_step)(void* steps, int M, const int32_t* tokens, const int32_t* sentences, int length,
                   const void* const* blocks, const int64_t* sizes, const int32_t* trail, float* out, float* looked,
                   int64_t longest) {
    return guarded([&] {
        return ((Steps*)steps)->step(M, tokens, sentences, length, blocks, sizes, trail, out, looked, longest), 0;
    });
}
ENTRY(void, steps_free)(void* steps) { delete (Steps*)steps; }

// See Forcing, in model.h.
ENTRY(int64_t, decoder_force)(void* model, int count, const int32_t* ids, const int64_t* starts, const int32_t* listed,
                   const int64_t* lists, const Tables* tables, const int32_t* tokens, const int32_t* wanted,
                   const int64_t* ends, double temperature, double* scores, const int32_t* layers, int layer_count,
                   float* weights, int threads) {
    return guarded([&] {
        const Forcing asked{tokens, wanted, ends, temperature, scores, layers, layer_count, weights};
        Sources sources = sources_of(count, ids, starts, listed, lists);
        return ((Model*)model)->force(std::move(sources), asked, threads, tables->of(0), tables->of(1)), 0;
    });
}
