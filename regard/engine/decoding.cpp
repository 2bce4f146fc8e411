// A Transformer that translates on a CPU: encoder, decoder and beam search, one call a step of the whole batch; or the
// step alone, for the searches that are written elsewhere.
//
// Weights are packed once, in one of three kinds (float32, bfloat16, int8), in panels of 64 columns that a product reads
// from front to back. Every row's numbers come from that row alone, summed in an order that no neighbour changes, so a
// sentence's translation is the same, bit for bit, whatever it is translated with. Held equal by tests to the model's
// page and to search/beam.py.
//
// Sizes: M rows, K and N inputs and outputs of a matrix, D width, E and F widths of all heads' keys and values, V tokens.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <omp.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "vectors.h"

namespace {

typedef uint8_t Bytes __attribute__((vector_size(16), aligned(1)));
constexpr int PANEL = 64;  // columns of a matrix that are multiplied together
constexpr float LOWEST = -std::numeric_limits<float>::infinity();

// How many rows and vectors of a panel a product keeps in registers.
#ifdef __AVX512F__
constexpr int R = 6, V = 4;
#else
constexpr int R = 6, V = 1;
#endif

inline float smallest(Floats x) { return -largest(-x); }

// A bit for each number above `floor`.
inline unsigned above(Floats x, float floor) {
#ifdef __AVX512F__
    return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(floor), _CMP_GT_OQ);
#else
    unsigned bits = 0;
    for (int i = 0; i < W; i++) bits |= unsigned(x[i] > floor) << i;
    return bits;
#endif
}

// The sums of sixteen vectors as one vector: four times, pairs are folded side by side.
inline Floats sums(Floats (&x)[W]) {
    for (int i = 0; i < 8; i++)
        x[i] = __builtin_shufflevector(x[i], x[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
               __builtin_shufflevector(x[i], x[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    for (int i = 0; i < 4; i++)
        x[i] = __builtin_shufflevector(x[i], x[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +
               __builtin_shufflevector(x[i], x[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    for (int i = 0; i < 2; i++)
        x[i] = __builtin_shufflevector(x[i], x[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
               __builtin_shufflevector(x[i], x[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    return __builtin_shufflevector(x[0], x[1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
           __builtin_shufflevector(x[0], x[1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
}

// -- threads ----------------------------------------------------------------------------------------------------------

struct Barrier {
    std::atomic<int> waiting{0}, round{0}, asleep{0};
};

// One of `size` threads that do the same work together.
struct Team {
    int id, size;
    Barrier& barrier;

    void wait() {
        if (size == 1) return;
        int round = barrier.round.load();
        if (barrier.waiting.fetch_add(1) + 1 == size) {
            barrier.waiting.store(0);
            barrier.round.store(round + 1);
            if (barrier.asleep.load()) syscall(SYS_futex, &barrier.round, FUTEX_WAKE_PRIVATE, size, nullptr, nullptr, 0);
            return;
        }
        for (int spins = 0; spins < 3000; spins++) {
            if (barrier.round.load() != round) return;
#ifdef __x86_64__
            _mm_pause();
#endif
        }
        barrier.asleep.fetch_add(1);  // somebody has no core to run on: leave this one to whoever waits for it
        while (barrier.round.load() == round)
            syscall(SYS_futex, &barrier.round, FUTEX_WAIT_PRIVATE, round, nullptr, nullptr, 0);
        barrier.asleep.fetch_sub(1);
    }
    std::pair<int, int> share(int n) const { return {int(int64_t(n) * id / size), int(int64_t(n) * (id + 1) / size)}; }
};

template <class Work> void together(int threads, Work work) {
    Barrier barrier;
#pragma omp parallel num_threads(threads)
    {
        Team team{omp_get_thread_num(), omp_get_num_threads(), barrier};
        work(team);
    }
}

// -- kinds of numbers -------------------------------------------------------------------------------------------------

// A kind says what a weight is, how many make a word of 32 bits, and how a vector of sums takes up sixteen columns' words
// times one row's word. Kept is what keys and values are kept in.

struct Float32 {
    typedef float Weight, Kept;
    typedef Floats Sum;
    static constexpr int PER_WORD = 1;
    static inline Sum step(Sum s, int32_t a, Ints b) {
        float x; std::memcpy(&x, &a, 4);
        return s + x * (Floats)b;
    }
};

struct Bfloat16 {
    typedef bf16 Weight, Kept;
    typedef Floats Sum;
    static constexpr int PER_WORD = 2;
    static inline Sum step(Sum s, int32_t a, Ints b) {
#ifdef __AVX512BF16__
        return (Sum)_mm512_dpbf16_ps((__m512)s, (__m512bh)_mm512_set1_epi32(a), (__m512bh)b);
#else
        uint32_t low = uint32_t(a) << 16, high = uint32_t(a) & 0xffff0000u;
        float x, y; std::memcpy(&x, &low, 4); std::memcpy(&y, &high, 4);
        return s + x * (Floats)((Words)b << 16) + y * (Floats)((Words)b & 0xffff0000u);
#endif
    }
};

struct Int8 {
    typedef int8_t Weight;
    typedef bf16 Kept;
    typedef Ints Sum;
    static constexpr int PER_WORD = 4;
    static inline Sum step(Sum s, int32_t a, Ints b) {  // a's bytes have no sign
#ifdef __AVX512VNNI__
        return (Sum)_mm512_dpbusd_epi32((__m512i)s, _mm512_set1_epi32(a), (__m512i)b);
#else
        for (int i = 0; i < 4; i++) s += int32_t(uint8_t(a >> 8 * i)) * (b << (24 - 8 * i) >> 24);
        return s;
#endif
    }
};

// -- products ---------------------------------------------------------------------------------------------------------

struct Free { void operator()(void* p) const { std::free(p); } };
typedef std::unique_ptr<char, Free> Block;

Block block(size_t bytes) {
    constexpr size_t HUGE_PAGE = size_t(1) << 21;
    size_t unit = bytes < HUGE_PAGE ? 64 : HUGE_PAGE;
    bytes = (bytes + unit - 1) / unit * unit;
    Block made((char*)std::aligned_alloc(unit, bytes));
    if (unit == HUGE_PAGE) madvise(made.get(), bytes, MADV_HUGEPAGE);  // a step reads all weights: fewer pages to find
    return made;
}

// y = x A' + bias, A (N, K); int8: A = scale * whole numbers, a column's own scale.
struct Matrix {
    int N = 0, K = 0, panels = 0, words = 0;  // words of 32 bits in a row of x
    Block packed;                             // [panel][word][column][number of the word]
    std::vector<float> bias, scale, total;    // (panels * PANEL); total: a column's sum of whole numbers

    void size(int outputs, int inputs, int words_of_a_row, float padding) {
        N = outputs, K = inputs, panels = (N + PANEL - 1) / PANEL, words = words_of_a_row;
        size_t columns = size_t(panels) * PANEL, bytes = columns * words * 4;
        packed = block(bytes);
        std::memset(packed.get(), 0, bytes);
        bias.assign(columns, padding), scale.assign(columns, 0.0f), total.assign(columns, 0.0f);
    }
};

// Rows as products read them. int8: x = low + scale * bytes, a row's own.
struct Rows {
    int M = 0;
    int64_t stride = 0;
    std::vector<int32_t> words;
    std::vector<float> scale, low;

    void reserve(int rows, int widest) {
        M = rows, stride = widest;
        if (words.size() < size_t(rows) * widest) words.resize(size_t(rows) * widest);
        if (scale.size() < size_t(rows)) scale.resize(rows), low.resize(rows);
    }
    int32_t* at(int row) { return words.data() + row * stride; }
};

template <class Kind> void pack(Matrix& to, int N, int K, const float* weight, const float* bias, float padding) {
    constexpr int Q = Kind::PER_WORD;
    to.size(N, K, K / Q, padding);
    auto* out = (typename Kind::Weight*)to.packed.get();
#pragma omp parallel for
    for (int n = 0; n < N; n++) {
        const float* row = weight + int64_t(n) * K;
        to.bias[n] = bias ? bias[n] : 0.0f;
        float most = 0.0f;
        for (int k = 0; k < K; k++) most = std::max(most, std::fabs(row[k]));
        float scale = most / 127.0f, total = 0.0f;
        for (int k = 0; k < K; k++) {
            auto& place = out[((int64_t(n / PANEL) * to.words + k / Q) * PANEL + n % PANEL) * Q + k % Q];
            if constexpr (Q == 1) place = row[k];
            if constexpr (Q == 2) store1(&place, row[k]);
            if constexpr (Q == 4) total += place = int8_t(scale > 0.0f ? std::lrint(row[k] / scale) : 0);
        }
        to.scale[n] = scale, to.total[n] = total;
    }
}

// The words of a packed matrix, a column after the other, for those who take some columns of it.
Block unpacked(const Matrix& from) {
    Block made = block(size_t(from.N) * from.words * 4);
    auto* out = (int32_t*)made.get();
    auto* in = (const int32_t*)from.packed.get();
#pragma omp parallel for
    for (int n = 0; n < from.N; n++)
        for (int k = 0; k < from.words; k++)
            out[int64_t(n) * from.words + k] = in[(int64_t(n / PANEL) * from.words + k) * PANEL + n % PANEL];
    return made;
}

// The columns of a matrix that a list names, as a matrix of its own. Its size is there; a thread fills some panels.
void take(const Matrix& from, const int32_t* columns, const int32_t* list, Matrix& to, Team& team) {
    auto* out = (int32_t*)to.packed.get();
    auto [first, last] = team.share(to.panels);
    for (int n = first * PANEL; n < std::min(last * PANEL, to.N); n++) {
        const int32_t* column = columns + int64_t(list[n]) * from.words;
        for (int k = 0; k < to.words; k++) out[(int64_t(n / PANEL) * to.words + k) * PANEL + n % PANEL] = column[k];
        to.bias[n] = from.bias[list[n]], to.scale[n] = from.scale[list[n]], to.total[n] = from.total[list[n]];
    }
}

template <class Kind> void prepare(Rows& rows, int row, const float* x, int K) {
    int32_t* to = rows.at(row);
    if constexpr (Kind::PER_WORD == 1) std::memcpy(to, x, K * sizeof(float));
    if constexpr (Kind::PER_WORD == 2)
        for (int k = 0; k < K; k += W) store((bf16*)to + k, load(x + k));
    if constexpr (Kind::PER_WORD == 4) {
        Floats least = load(x), most = least;
        for (int k = W; k < K; k += W) least = -larger(-least, -load(x + k)), most = larger(most, load(x + k));
        float low = smallest(least), range = largest(most) - low;
        float shrink = range > 0.0f ? 255.0f / range : 0.0f;
        rows.low[row] = low, rows.scale[row] = range / 255.0f;
        for (int k = 0; k < K; k += W) {
            Words u = (Words)((load(x + k) - low) * shrink + 12582912.0f);  // the lowest byte is the rounded number
            Bytes b = __builtin_convertvector(u & 0xffu, Bytes);
            std::memcpy((char*)to + k, &b, sizeof b);
        }
    }
}

template <class Kind, int ROWS>
__attribute__((noinline)) void tile(int words, const int32_t* a, int64_t stride, const char* b, typename Kind::Sum* out) {
    for (int part = 0; part < PANEL / W; part += V, b += V * sizeof(Ints)) {
        typename Kind::Sum s[ROWS][V] = {};
        const char* from = b;
        for (int k = 0; k < words; k++, from += PANEL * 4) {
            Ints y[V];
            for (int v = 0; v < V; v++) std::memcpy(y + v, from + v * sizeof(Ints), sizeof(Ints));
            for (int r = 0; r < ROWS; r++)
                for (int v = 0; v < V; v++) s[r][v] = Kind::step(s[r][v], a[r * stride + k], y[v]);
        }
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < V; v++) out[r * (PANEL / W) + part + v] = s[r][v];
    }
}

// Calls put(row, column, y) with the PANEL outputs from each `column` on of the rows from `from` to `to`; columns from w.N
// on are padding. Rows are cut into so many chunks; with one, a thread's panels do not depend on the number of rows.
template <class Kind, class Put>
void multiply(const Matrix& w, Rows& a, Team& team, Put put, int from, int to, int chunks) {
    typedef typename Kind::Sum Sum;
    static constexpr void (*TILES[R])(int, const int32_t*, int64_t, const char*, Sum*) = {
        tile<Kind, 1>, tile<Kind, 2>, tile<Kind, 3>, tile<Kind, 4>, tile<Kind, 5>, tile<Kind, 6>};
    auto [first, last] = team.share(w.panels * chunks);
    for (int task = first; task < last; task++) {
        int panel = task / chunks, column = panel * PANEL, chunk = task % chunks;
        const char* b = w.packed.get() + int64_t(panel) * w.words * PANEL * 4;
        int end = from + int(int64_t(to - from) * (chunk + 1) / chunks);
        for (int row = from + int(int64_t(to - from) * chunk / chunks), count; row < end; row += count) {
            int blocks = (end - row + R - 1) / R;
            count = (end - row + blocks - 1) / blocks;
            Sum out[R * (PANEL / W)];
            TILES[count - 1](w.words, a.at(row), a.stride, b, out);
            for (int r = 0; r < count; r++) {
                Floats y[PANEL / W];
                for (int v = 0; v < PANEL / W; v++) {
                    Floats bias = load(w.bias.data() + column + v * W);
                    if constexpr (Kind::PER_WORD == 4) {
                        Floats products = __builtin_convertvector(out[r * (PANEL / W) + v], Floats) * a.scale[row + r];
                        products += load(w.total.data() + column + v * W) * a.low[row + r];
                        y[v] = products * load(w.scale.data() + column + v * W) + bias;
                    } else {
                        y[v] = out[r * (PANEL / W) + v] + bias;
                    }
                }
                put(row + r, column, y);
            }
        }
    }
}

template <class Kind, class Put> void multiply(const Matrix& w, Rows& a, Team& team, Put put) {
    int chunks = std::max(1, std::min((2 * team.size + w.panels - 1) / w.panels, a.M / (4 * R)));
    multiply<Kind>(w, a, team, put, 0, a.M, chunks);
}

// -- the other parts of a layer ---------------------------------------------------------------------------------------

struct Norm { const float *gain, *bias; };

void normalise(const float* x, float* out, int D, Norm norm, float epsilon) {
    Floats total{}, squares{};
    for (int d = 0; d < D; d += W) total += load(x + d);
    float mean = sum(total) / D;
    for (int d = 0; d < D; d += W) { Floats y = load(x + d) - mean; squares += y * y; }
    float factor = 1.0f / std::sqrt(sum(squares) / D + epsilon);
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
// HEAD is dk and dv where they are known when this is compiled, else 0.
template <int HEAD, class T>
void look(const float* q, int heads, int dk, int dv, int n, const T* const* at, float* out, float* weights) {
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

// -- the model --------------------------------------------------------------------------------------------------------

struct Sizes {  // in the order in which decoding.py hands them over
    int64_t width, heads, key_width, value_width, inner, encoder_layers, decoder_layers, vocabulary, activation, pre_norm;
};

struct Layer {
    Matrix attention, attended, query, memory, looked, inner, outer;  // encoder layers have no query, memory and looked
    std::vector<Norm> norms;
};

struct Embedding {  // of one side; places may be null
    const float* table;
    float scale;
    const float* places;
};

struct Hypothesis {
    std::vector<int> ids;
    double total, score;
    bool ended;
};

// -- search -----------------------------------------------------------------------------------------------------------

struct Settings {  // in the order in which decoding.py hands them over
    int64_t width, n_best, batch, stop, begin, end, threads;
};
enum Stop { BOUND, FIRST, BEAM, FULL };

// The best outputs of a row that one thread has seen, and the sum of e^(output - peak) over all of them.
struct Best {
    float peak, floor;
    int count;
    Floats sums;
    float* values;
    int* tokens;

    void admit(int keep, int column, const Floats* y) {
        float most = largest(larger(larger(y[0], y[1]), larger(y[2], y[3])));
        if (most > peak) {
            sums *= peak == LOWEST ? 0.0f : std::exp(peak - most);
            peak = most;
        }
        for (int v = 0; v < PANEL / W; v++)
            for (unsigned bits = above(y[v], floor); bits; bits &= bits - 1) {
                int i = __builtin_ctz(bits), place = count < keep ? count++ : keep - 1;
                float value = y[v][i];
                if (count == keep && !(value > floor)) continue;  // the floor has risen since
                for (; place > 0 && values[place - 1] < value; place--)
                    values[place] = values[place - 1], tokens[place] = tokens[place - 1];
                values[place] = value, tokens[place] = column + v * W + i;
                if (count == keep) floor = values[keep - 1];
            }
    }
};

constexpr int PAGE = 16;  // target positions whose keys and values are stored together

template <class Kind> struct Decoder;

template <class Kind> struct Sentence {
    typedef typename Kind::Kept Kept;
    int index = 0, length = 0, limit = 0, tokens = 0;
    std::vector<Kept> memory;             // (decoder layers, tokens, E + F)
    Matrix output;                        // of the tokens in its list, if it has one
    std::vector<Kept*> pages;             // each (decoder layers, PAGE, width, E + F)
    std::vector<std::vector<int>> ids;    // of each open hypothesis
    std::vector<std::vector<int>> trail;  // the row that wrote each of its positions
    std::vector<double> totals;
    std::vector<Hypothesis> finished;
    bool done = false;

    struct Candidate { double total; int row, token; };

    // As in search/beam.py: what finishes, what goes on, and whether anything that goes on could still win.
    void advance(std::vector<Candidate>& found, const Settings& s, const double* penalties) {
        size_t width = s.width, keep = std::min(found.size(), 2 * width);
        auto before = [](const Candidate& a, const Candidate& b) { return a.total > b.total; };
        std::partial_sort(found.begin(), found.begin() + keep, found.end(), before);
        found.resize(keep);
        length++;
        bool cut = length >= limit;
        for (size_t j = 0; j < keep && (j < width || cut); j++) {
            bool ended = found[j].token == s.end;
            if (!ended && !cut) continue;
            finished.push_back({ids[found[j].row], found[j].total, found[j].total / penalties[length], ended});
            if (!ended) finished.back().ids.push_back(found[j].token);
        }
        std::stable_sort(finished.begin(), finished.end(),
                         [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
        if (finished.size() > size_t(std::max(s.width, s.n_best))) finished.resize(std::max(s.width, s.n_best));
        std::vector<std::vector<int>> new_ids, new_trail;
        totals.clear();
        for (const Candidate& c : found) {
            if (c.token == s.end || totals.size() == width) continue;
            new_ids.push_back(ids[c.row]), new_ids.back().push_back(c.token);
            new_trail.push_back(trail[c.row]), new_trail.back().push_back(c.row);
            totals.push_back(c.total);
        }
        ids.swap(new_ids), trail.swap(new_trail);
        double bound = -std::numeric_limits<double>::infinity();
        if (s.stop == BOUND && !totals.empty()) bound = totals[0] / std::max(penalties[length + 1], penalties[limit]);
        size_t needed = s.stop == BEAM ? std::max(s.width, s.n_best) : s.n_best;
        bool enough = s.stop != FULL && finished.size() >= needed && finished[needed - 1].score >= bound;
        done = cut || totals.empty() || enough;
    }
};

struct Search {
    virtual ~Search() {}
    virtual int step() = 0;
    virtual const std::vector<Hypothesis>& found(int sentence) const = 0;
};

struct Steps {
    virtual ~Steps() {}
    virtual void step(int M, const int32_t* tokens, const int32_t* sentences, int length, const void* const* blocks,
                      const int64_t* sizes, const int32_t* trail, float* out) = 0;
};

// What is translated: ids of all sentences, end to end, and the tokens that each may become, if that is limited.
struct Sources {
    std::vector<int> ids, listed;
    std::vector<int64_t> starts, lists;  // one more than there are sentences; lists: none if all tokens are searched

    Sources(int count, const int32_t* ids, const int64_t* starts, const int32_t* listed, const int64_t* lists)
        : ids(ids, ids + starts[count]), starts(starts, starts + count + 1) {
        if (!lists) return;
        this->listed.assign(listed, listed + lists[count]), this->lists.assign(lists, lists + count + 1);
    }
    int tokens(int sentence) const { return int(starts[sentence + 1] - starts[sentence]); }
    const int* list(int sentence) const { return listed.data() + lists[sentence]; }
    int listed_in(int sentence) const { return int(lists[sentence + 1] - lists[sentence]); }
};

struct Model {
    virtual ~Model() {}
    // The next pair of tensors, in the order of the constructor of Decoder: a matrix and its bias, a norm's gain and bias.
    virtual void add(const float* first, const float* second) = 0;
    virtual std::unique_ptr<Search> search(Sources sources, const int32_t* limits, const double* penalties, int lengths,
                                           Settings settings, Embedding source, Embedding target) = 0;
    virtual std::unique_ptr<Steps> steps(Sources sources, int threads, Embedding source, Embedding target) = 0;
};

template <class Kind> struct Decoder : Model {
    Sizes z;
    float epsilon;
    std::vector<Layer> encoder, decoder;
    std::vector<Norm> final_norms;  // of encoder and decoder; none after post-norm layers
    Matrix output;
    Block columns;  // of the output, for lists; made when they are first asked for
    std::once_flag made;
    int widest, stored;  // words of the longest row; keys and values of a position

    struct Slot { Matrix* matrix; int N, K; float padding; std::vector<Norm>* norms; };
    std::vector<Slot> slots;  // where the pairs belong
    size_t filled = 0;

    Decoder(const Sizes& sizes, float eps) : z(sizes), epsilon(eps) {
        const int D = z.width, E = z.heads * z.key_width, F = z.heads * z.value_width, I = z.inner;
        encoder.resize(z.encoder_layers), decoder.resize(z.decoder_layers);
        for (auto* stack : {&encoder, &decoder}) {
            for (Layer& layer : *stack) {
                const Slot norm{nullptr, 0, 0, 0, &layer.norms};
                slots.insert(slots.end(), {{&layer.attention, 2 * E + F, D, 0, nullptr}, {&layer.attended, D, F, 0, nullptr}, norm});
                if (stack == &decoder)
                    slots.insert(slots.end(), {{&layer.query, E, D, 0, nullptr}, {&layer.memory, E + F, D, 0, nullptr},
                                               {&layer.looked, D, F, 0, nullptr}, norm});
                slots.insert(slots.end(), {{&layer.inner, I, D, 0, nullptr}, {&layer.outer, D, I, 0, nullptr}, norm});
            }
            if (z.pre_norm) slots.push_back({nullptr, 0, 0, 0, &final_norms});
        }
        slots.push_back({&output, int(z.vocabulary), D, LOWEST, nullptr});
        widest = std::max({D, E, F, I}), stored = E + F;
    }

    void add(const float* first, const float* second) override {
        const Slot& slot = slots[filled++];
        if (slot.matrix) pack<Kind>(*slot.matrix, slot.N, slot.K, first, second, slot.padding);
        else slot.norms->push_back({first, second});
    }

    std::unique_ptr<Search> search(Sources sources, const int32_t* limits, const double* penalties, int lengths,
                                   Settings settings, Embedding source, Embedding target) override;
    std::unique_ptr<Steps> steps(Sources sources, int threads, Embedding source, Embedding target) override;
};

// What is computed with, for M rows: x (M, D); y, queries or the feed-forward network's inside; rows of products.
template <class Kind> struct Computing {
    typedef typename Kind::Kept Kept;
    Decoder<Kind>& m;
    Sources sources;
    int threads;
    Embedding source, target;
    Rows rows;
    std::vector<float> x, y;
    std::vector<Kept> kept;  // keys and values of encoder rows

    Computing(Decoder<Kind>& model, Sources read, int team, Embedding from, Embedding to)
        : m(model), sources(std::move(read)), threads(team), source(from), target(to) {
        if (!sources.lists.empty()) std::call_once(m.made, [&] { m.columns = unpacked(m.output); });
    }

    void reserve(int M) {
        rows.reserve(M, m.widest);
        size_t need = size_t(M) * (m.widest + 2 * PANEL);
        if (x.size() < size_t(M) * m.z.width) x.resize(size_t(M) * m.z.width);
        if (y.size() < need) y.resize(need);
    }

    void embed(const Embedding& words, int row, int token, int place) {
        const int D = m.z.width;
        for (int d = 0; d < D; d += W) {
            Floats v = load(words.table + int64_t(token) * D + d) * words.scale;
            store(x.data() + int64_t(row) * D + d, words.places ? v + load(words.places + int64_t(place) * D + d) : v);
        }
    }

    // After a sub-layer (norms[i] is its own): post-norm replaces x, pre-norm reads x through the next one's norm.
    void settle(int row, const Norm* norm) {
        const int D = m.z.width;
        float* from = x.data() + int64_t(row) * D;
        float* to = m.z.pre_norm ? y.data() + int64_t(row) * m.widest : from;
        if (norm) normalise(from, to, D, *norm, m.epsilon);
        prepare<Kind>(rows, row, norm ? to : from, D);
    }

    void settle_all(Team& team, const Norm* norm) {
        team.wait();
        auto [first, last] = team.share(rows.M);
        for (int row = first; row < last; row++) settle(row, norm);
        team.wait();
    }

    void add_to_x(const Matrix& matrix, Team& team) {
        const int D = m.z.width;
        multiply<Kind>(matrix, rows, team, [&](int row, int column, const Floats* out) {
            for (int v = 0; v < PANEL / W && column + v * W < D; v++) {
                float* to = x.data() + int64_t(row) * D + column + v * W;
                store(to, load(to) + out[v]);
            }
        });
    }

    // Queries to y (M, E); keys and values to where place(row) says. Columns before `split` are queries.
    template <class Place> void project(const Matrix& matrix, int split, Team& team, Place place) {
        multiply<Kind>(matrix, rows, team, [&](int row, int column, const Floats* out) {
            for (int v = 0; v < PANEL / W && column + v * W < matrix.N; v++) {
                int at = column + v * W;
                if (at < split) store(y.data() + int64_t(row) * m.widest + at, out[v]);
                else store(place(row) + at - split, out[v]);
            }
        });
    }

    // Each row's query over its positions; `sees` fills in where they are and tells how many.
    template <class Sees> void attend(Team& team, Sees sees) {
        const int F = m.z.heads * m.z.value_width;
        team.wait();
        std::vector<const Kept*> at;
        std::vector<float> out(F), weights;
        auto [first, last] = team.share(rows.M);
        for (int row = first; row < last; row++) {
            at.clear();
            sees(row, at);
            const int n = int(at.size()), dk = m.z.key_width, dv = m.z.value_width;
            if (weights.size() < at.size() + W) weights.resize(2 * (n + W));
            auto looking = dk == 64 && dv == 64 ? look<64, Kept> : look<0, Kept>;
            looking(y.data() + int64_t(row) * m.widest, m.z.heads, dk, dv, n, at.data(), out.data(), weights.data());
            prepare<Kind>(rows, row, out.data(), F);
        }
        team.wait();
    }

    void feed_forward(const Layer& layer, Team& team) {
        multiply<Kind>(layer.inner, rows, team, [&](int row, int column, const Floats* out) {
            for (int v = 0; v < PANEL / W && column + v * W < m.z.inner; v++)
                store(y.data() + int64_t(row) * m.widest + column + v * W, activate(out[v], m.z.activation));
        });
        team.wait();
        auto [first, last] = team.share(rows.M);
        for (int row = first; row < last; row++) prepare<Kind>(rows, row, y.data() + int64_t(row) * m.widest, m.z.inner);
        team.wait();
        add_to_x(layer.outer, team);
    }

    // The norm to settle with after sub-layer i of a layer: its own, or with pre-norm the following one's.
    const Norm* norm_after(const std::vector<Layer>& stack, int side, size_t layer, size_t i) const {
        if (!m.z.pre_norm) return &stack[layer].norms[i];
        if (i + 1 < stack[layer].norms.size()) return &stack[layer].norms[i + 1];
        return layer + 1 < stack.size() ? &stack[layer + 1].norms[0] : &m.final_norms[side];
    }

    // Encodes sentences `first` and on. memory(sentence, layer) is where its keys and values for a decoder layer go.
    template <class Memory> void encode(int first, int count, Memory memory) {
        const int64_t from = sources.starts[first];
        const int M = int(sources.starts[first + count] - from), E = m.z.heads * m.z.key_width;
        reserve(M);
        if (kept.size() < size_t(M) * m.stored) kept.resize(size_t(M) * m.stored);
        std::vector<int> owner(M);
        for (int i = first; i < first + count; i++)
            std::fill_n(owner.begin() + (sources.starts[i] - from), sources.tokens(i), i);
        auto start = [&](int row) { return int(sources.starts[owner[row]] - from); };
        together(threads, [&](Team team) {
            auto [begin, end] = team.share(M);
            for (int row = begin; row < end; row++) embed(source, row, sources.ids[from + row], row - start(row));
            settle_all(team, m.z.pre_norm ? &m.encoder[0].norms[0] : nullptr);
            for (size_t l = 0; l < m.encoder.size(); l++) {
                const Layer& layer = m.encoder[l];
                project(layer.attention, E, team, [&](int row) { return kept.data() + int64_t(row) * m.stored; });
                attend(team, [&](int row, std::vector<const Kept*>& at) {
                    for (int p = 0; p < sources.tokens(owner[row]); p++)
                        at.push_back(kept.data() + int64_t(start(row) + p) * m.stored);
                });
                add_to_x(layer.attended, team);
                settle_all(team, norm_after(m.encoder, 0, l, 0));
                feed_forward(layer, team);
                settle_all(team, norm_after(m.encoder, 0, l, 1));
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
    template <class Own, class Wrote, class Reads> void decode(Team& team, Own own, Wrote wrote, Reads reads) {
        const int E = m.z.heads * m.z.key_width;
        settle_all(team, m.z.pre_norm ? &m.decoder[0].norms[0] : nullptr);
        for (size_t l = 0; l < m.decoder.size(); l++) {
            const Layer& layer = m.decoder[l];
            project(layer.attention, E, team, [&](int row) { return own(row, l); });
            attend(team, [&](int row, std::vector<const Kept*>& at) {
                wrote(row, l, at);
                at.push_back(own(row, l));
            });
            add_to_x(layer.attended, team);
            settle_all(team, norm_after(m.decoder, 1, l, 0));
            project(layer.query, E, team, [](int) { return (Kept*)nullptr; });
            attend(team, [&](int row, std::vector<const Kept*>& at) { reads(row, l, at); });
            add_to_x(layer.looked, team);
            settle_all(team, norm_after(m.decoder, 1, l, 1));
            feed_forward(layer, team);
            settle_all(team, norm_after(m.decoder, 1, l, 2));
        }
    }
};

template <class Kind> struct Searching : Computing<Kind>, Search {
    typedef typename Kind::Kept Kept;
    typedef Sentence<Kind> One;
    using Computing<Kind>::m;
    using Computing<Kind>::rows;
    using Computing<Kind>::sources;
    Settings s;
    std::vector<int> limits;
    std::vector<double> penalties;
    std::vector<std::vector<Hypothesis>> results;
    std::vector<std::unique_ptr<One>> ready, live;  // encoded and waiting; being decoded
    std::vector<Block> memory;
    std::vector<Kept*> free_pages;
    int next = 0, finished = 0;
    std::vector<Best> best;
    std::vector<float> values;
    std::vector<int> tokens;

    Searching(Decoder<Kind>& model, Sources read, Settings settings, Embedding from, Embedding to)
        : Computing<Kind>(model, std::move(read), int(settings.threads), from, to), s(settings) {}

    const std::vector<Hypothesis>& found(int sentence) const override { return results[sentence]; }

    // Encodes the next sentences, and makes their keys and values for every decoder layer.
    void encode() {
        const int many = std::min<int64_t>(s.batch, sources.starts.size() - 1 - next);
        int count = 1;
        while (count < many && sources.starts[next + count + 1] - sources.starts[next] <= 1024) count++;
        for (int i = 0; i < count; i++) {
            auto one = std::make_unique<One>();
            one->index = next + i, one->limit = limits[next + i], one->tokens = sources.tokens(next + i);
            one->memory.resize(size_t(m.z.decoder_layers) * one->tokens * m.stored);
            one->ids.resize(1), one->trail.resize(1), one->totals.assign(1, 0.0);
            ready.push_back(std::move(one));
        }
        Computing<Kind>::encode(next, count, [&](int sentence, size_t l) {
            One& one = *ready[sentence - next];
            return one.memory.data() + int64_t(l) * one.tokens * m.stored;
        });
        this->list(next, count, [&](int i) -> Matrix& { return ready[i]->output; });
        next += count;
        std::reverse(ready.begin(), ready.end());  // the first is taken from the back
    }

    Kept* page() {
        if (free_pages.empty()) {
            memory.push_back(block(size_t(m.z.decoder_layers) * PAGE * s.width * m.stored * sizeof(Kept)));
            free_pages.push_back((Kept*)memory.back().get());
        }
        Kept* taken = free_pages.back();
        free_pages.pop_back();
        return taken;
    }

    // Where a position's keys and values lie in one layer, as written by hypothesis `row`.
    Kept* place(const One& one, size_t layer, int position, int row) const {
        return one.pages[position / PAGE] + ((layer * PAGE + position % PAGE) * s.width + row) * m.stored;
    }

    int step() override {
        while (live.size() < size_t(s.batch) && (!ready.empty() || next + 1 < int(sources.starts.size()))) {
            if (ready.empty()) encode();
            live.push_back(std::move(ready.back()));
            ready.pop_back();
        }
        if (live.empty()) return finished;
        std::vector<std::pair<One*, int>> of;  // each row's sentence and hypothesis
        for (auto& one : live) {
            if (one->length % PAGE == 0) one->pages.push_back(page());
            for (size_t j = 0; j < one->ids.size(); j++) of.push_back({one.get(), int(j)});
        }
        const int M = int(of.size());
        this->reserve(M);
        const int keep = int(std::min<int64_t>(s.width == 1 && s.stop == FIRST ? 1 : 2 * s.width, m.z.vocabulary));
        const size_t lists = size_t(s.threads) * M;
        if (best.size() < lists) best.resize(lists);
        if (values.size() < lists * keep) values.resize(lists * keep), tokens.resize(lists * keep);
        together(s.threads, [&](Team team) { decode(team, of, keep); });
        for (size_t i = 0; i < live.size();) {
            if (!live[i]->done) { i++; continue; }
            results[live[i]->index] = std::move(live[i]->finished);
            free_pages.insert(free_pages.end(), live[i]->pages.begin(), live[i]->pages.end());
            live[i] = std::move(live.back());
            live.pop_back();
            finished++;
        }
        return finished;
    }

    void decode(Team team, const std::vector<std::pair<One*, int>>& of, int keep) {
        const int M = rows.M;
        auto [first, last] = team.share(M);
        for (int row = first; row < last; row++) {
            auto [one, j] = of[row];
            this->embed(this->target, row, one->length ? one->ids[j].back() : int(s.begin), one->length);
        }
        Computing<Kind>::decode(
            team, [&](int row, size_t l) { return place(*of[row].first, l, of[row].first->length, of[row].second); },
            [&](int row, size_t l, std::vector<const Kept*>& at) {
                auto [one, j] = of[row];
                for (int p = 0; p < one->length; p++) at.push_back(place(*one, l, p, one->trail[j][p]));
            },
            [&](int row, size_t l, std::vector<const Kept*>& at) {
                const One& one = *of[row].first;
                for (int p = 0; p < one.tokens; p++) at.push_back(one.memory.data() + (int64_t(l) * one.tokens + p) * m.stored);
            });
        if (sources.lists.empty()) look_for(team, m.output, 0, M, keep);
        for (int row = 0, i = 0; row < M && !sources.lists.empty(); i++) {
            const One& one = *of[row].first;
            // Panels are shared out as they would be were the sentence alone; only who has which part goes round.
            Team turned{(team.id + i) % team.size, team.size, team.barrier};
            look_for(turned, one.output, row, row + int(one.ids.size()), keep);
            row += int(one.ids.size());
        }
        team.wait();
        auto [from, to] = team.share(int(live.size()));
        std::vector<typename One::Candidate> found;
        for (int i = from; i < to; i++) {
            found.clear();
            const int* list = sources.lists.empty() ? nullptr : sources.list(live[i]->index);
            for (int row = 0; row < M; row++) {
                if (of[row].first != live[i].get()) continue;
                double total = live[i]->totals[of[row].second] - normaliser(row, M, team.size);
                for (int t = 0; t < team.size; t++) {
                    const Best& b = best[size_t(t) * M + row];
                    for (int k = 0; k < b.count; k++)
                        found.push_back({total + b.values[k], of[row].second, list ? list[b.tokens[k]] : b.tokens[k]});
                }
            }
            live[i]->advance(found, s, penalties.data());
        }
    }

    // The best outputs of the rows from `from` to `to`: the part that this member of the team has of them.
    void look_for(Team& team, const Matrix& output, int from, int to, int keep) {
        const int M = rows.M;
        for (int row = from; row < to; row++) {
            size_t list = size_t(team.id) * M + row;
            best[list] = {LOWEST, LOWEST, 0, Floats{}, values.data() + list * keep, tokens.data() + list * keep};
        }
        multiply<Kind>(output, rows, team, [&](int row, int column, const Floats* y) {
            Best& b = best[size_t(team.id) * M + row];
            if (above(larger(larger(y[0], y[1]), larger(y[2], y[3])), b.floor)) b.admit(keep, column, y);
            for (int v = 0; v < PANEL / W; v++) b.sums += exponential(y[v] - b.peak);
        }, from, to, 1);
    }

    // The logarithm of the sum of e^output over a row.
    double normaliser(int row, int M, int threads) const {
        double peak = LOWEST, total = 0.0;
        for (int t = 0; t < threads; t++) peak = std::max<double>(peak, best[size_t(t) * M + row].peak);
        for (int t = 0; t < threads; t++) {
            const Best& b = best[size_t(t) * M + row];
            if (b.count) total += sum(b.sums) * std::exp(b.peak - peak);
        }
        return peak + std::log(total);
    }
};

template <class Kind>
std::unique_ptr<Search> Decoder<Kind>::search(Sources sources, const int32_t* limits, const double* penalties, int lengths,
                                              Settings settings, Embedding source, Embedding target) {
    const size_t count = sources.starts.size() - 1;
    auto made = std::make_unique<Searching<Kind>>(*this, std::move(sources), settings, source, target);
    made->limits.assign(limits, limits + count);
    made->penalties.assign(penalties, penalties + lengths);
    made->results.resize(count);
    return made;
}

// The step alone: log-probabilities of the next token, for a search that is written elsewhere.
template <class Kind> struct Stepping : Computing<Kind>, Steps {
    typedef typename Kind::Kept Kept;
    using Computing<Kind>::m;
    using Computing<Kind>::rows;
    using Computing<Kind>::sources;
    std::vector<Kept> memory;      // (decoder layers, tokens of all sentences, E + F)
    std::vector<Matrix> outputs;   // of each sentence's list, if there are lists
    std::vector<float> logits;     // of rows with lists

    Stepping(Decoder<Kind>& model, Sources read, int threads, Embedding from, Embedding to)
        : Computing<Kind>(model, std::move(read), threads, from, to) {
        const int count = int(sources.starts.size()) - 1;
        memory.resize(size_t(m.z.decoder_layers) * sources.starts[count] * m.stored);
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
    // out (M, panels of the whole output): what no list names is left as it is.
    void step(int M, const int32_t* tokens, const int32_t* sentences, int length, const void* const* blocks,
              const int64_t* sizes, const int32_t* trail, float* out) override {
        const bool lists = !outputs.empty();
        const int64_t whole = int64_t(m.output.panels) * PANEL;
        int64_t widest = whole;
        if (lists) {
            widest = 0;
            for (int row = 0; row < M; row++) widest = std::max<int64_t>(widest, outputs[sentences[row]].panels * PANEL);
            if (logits.size() < size_t(M * widest)) logits.resize(M * widest);
        }
        float* to = lists ? logits.data() : out;
        this->reserve(M);
        auto place = [&](int p, size_t l, int row) { return (Kept*)blocks[p] + (int64_t(l) * sizes[p] + row) * m.stored; };
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
                settle_logits(values, output.panels * PANEL);
                if (!lists) continue;
                const int* list = sources.list(sentences[row]);
                for (int i = 0; i < output.N; i++) out[row * whole + list[i]] = values[i];
            }
        });
    }

    static void settle_logits(float* values, int n) {
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

extern "C" {

void* decoder_new(int kind, const int64_t* sizes, float epsilon) {
    Sizes z; std::memcpy(&z, sizes, sizeof z);
    if (kind == 0) return static_cast<Model*>(new Decoder<Float32>(z, epsilon));
    if (kind == 1) return static_cast<Model*>(new Decoder<Bfloat16>(z, epsilon));
    return static_cast<Model*>(new Decoder<Int8>(z, epsilon));
}
void decoder_add(void* model, const float* first, const float* second) { ((Model*)model)->add(first, second); }
void decoder_free(void* model) { delete (Model*)model; }

// Lists of tokens may be null. Tables and places are read where they lie: two of each, of the source and of the target;
// places may be null.
void* search_new(void* model, int count, const int32_t* ids, const int64_t* starts, const int32_t* listed,
                 const int64_t* lists, const float* const* tables, const float* scales, const float* const* places,
                 const int32_t* limits, const double* penalties, int lengths, const int64_t* settings) {
    Settings s; std::memcpy(&s, settings, sizeof s);
    return ((Model*)model)->search({count, ids, starts, listed, lists}, limits, penalties, lengths, s,
                                   {tables[0], scales[0], places[0]}, {tables[1], scales[1], places[1]}).release();
}
int search_step(void* search) { return ((Search*)search)->step(); }
void search_free(void* search) { delete (Search*)search; }

int search_found(void* search, int sentence) { return int(((Search*)search)->found(sentence).size()); }
int search_get(void* search, int sentence, int rank, int32_t* ids, double* scores, int32_t* ended) {
    const Hypothesis& h = ((Search*)search)->found(sentence)[rank];
    std::copy(h.ids.begin(), h.ids.end(), ids);
    scores[0] = h.total, scores[1] = h.score, *ended = h.ended;
    return int(h.ids.size());
}

void* steps_new(void* model, int count, const int32_t* ids, const int64_t* starts, const int32_t* listed,
                const int64_t* lists, const float* const* tables, const float* scales, const float* const* places,
                int threads) {
    return ((Model*)model)->steps({count, ids, starts, listed, lists}, threads, {tables[0], scales[0], places[0]},
                                  {tables[1], scales[1], places[1]}).release();
}
void steps_step(void* steps, int M, const int32_t* tokens, const int32_t* sentences, int length, const void* const* blocks,
                const int64_t* sizes, const int32_t* trail, float* out) {
    ((Steps*)steps)->step(M, tokens, sentences, length, blocks, sizes, trail, out);
}
void steps_free(void* steps) { delete (Steps*)steps; }
}
