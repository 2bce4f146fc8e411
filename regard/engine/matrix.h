// Matrices packed in panels of 64 columns, which a product reads from front to back; and their products with rows.
//
// A row's numbers come from that row alone, summed in an order that no neighbour changes.
// Sizes: M rows, K and N inputs and outputs of a matrix.

#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "numbers.h"
#include "team.h"
#include "tiles.h"

namespace {

constexpr std::align_val_t LINE{64}, HUGE_PAGE{size_t(1) << 21};
// Numbers that begin where a line of the cache does: a vector of the processor's never lies in two lines.
template <class T> struct InLines {
    typedef T value_type;
    InLines() {}
    template <class U> InLines(const InLines<U>&) {}
    T* allocate(size_t n) { return (T*)::operator new[](n * sizeof(T), LINE); }
    void deallocate(T* p, size_t) { ::operator delete[](p, LINE); }
    bool operator==(const InLines&) const = default;
};
template <class T> using Numbers = std::vector<T, InLines<T>>;

struct Free {
    std::align_val_t unit;
    void operator()(char* p) const { ::operator delete[](p, unit); }
};
typedef std::shared_ptr<char> Block;  // of one matrix, which several models may share; nobody writes to it once it is filled

Block block(size_t bytes) {
    const std::align_val_t unit = bytes < size_t(HUGE_PAGE) ? LINE : HUGE_PAGE;
    bytes = std::max<size_t>(1, (bytes + size_t(unit) - 1) / size_t(unit)) * size_t(unit);
    Block made((char*)::operator new[](bytes, unit), Free{unit});
#ifdef __linux__
    if (unit == HUGE_PAGE) madvise(made.get(), bytes, MADV_HUGEPAGE);  // a step reads all weights: fewer pages to find
#endif
    return made;
}

// y = x A' + bias, A (N, K); int8: A = scale * whole numbers, a column's own scale.
struct Matrix {
    int N = 0, K = 0, panels = 0, words = 0;  // words of 32 bits in a row of x
    Block packed;                             // [panel][word][column][number of the word]
    Numbers<float> bias, scale, total;        // (panels * PANEL); total: a column's sum of whole numbers

    void size(int outputs, int inputs, int words_of_a_row, float padding) {
        N = outputs, K = inputs, panels = (N + PANEL - 1) / PANEL, words = words_of_a_row;
        size_t columns = size_t(panels) * PANEL, bytes = checked_product({panels, PANEL, words, 4});
        packed = block(bytes);
        std::memset(packed.get(), 0, bytes);
        bias.assign(columns, padding), scale.assign(columns, 0.0f), total.assign(columns, 0.0f);
    }
};

// Rows as products read them. int8: x = low + scale * bytes, with a scale and low of each row's own.
struct Rows {
    int M = 0;
    int64_t stride = 0;
    Numbers<int32_t> words;
    std::vector<float> scale, low;

    // Room for rows of so many words, and for those behind them that tiles read without need.
    void reserve(int rows, int widest) {
        M = rows, stride = widest + TILE;  // rows that lie some power of two apart share a place in the cache
        if (size_t need = checked_product({rows + 2 * TILE, stride}); words.size() < need) words.resize(need);
        if (scale.size() < size_t(rows)) scale.resize(rows), low.resize(rows);
    }
    int32_t* at(int row) { return words.data() + row * stride; }
};

// Words of a row of K numbers; whole tiles, of which the last is filled up with zeros.
template <class Kind> int words_of(int K) {
    const int words = K / Kind::PER_WORD;
    return Tiles<Kind>::KNOWN ? (words + TILE - 1) / TILE * TILE : words;
}

template <class Kind> void pack(Matrix& to, int N, int K, const float* weight, const float* bias, float padding) {
    constexpr int Q = Kind::PER_WORD;
    to.size(N, K, words_of<Kind>(K), padding);
    auto* out = (typename Kind::Weight*)to.packed.get();
    each(threads(), N, [&](int64_t n) {
        const float* row = weight + n * K;
        to.bias[n] = bias ? bias[n] : 0.0f;
        float most = 0.0f;
        for (int k = 0; k < K; k++) most = std::max(most, std::fabs(row[k]));
        float scale = most / 127.0f, total = 0.0f;
        for (int k = 0; k < K; k++) {
            auto& place = out[((n / PANEL * to.words + k / Q) * PANEL + n % PANEL) * Q + k % Q];
            if constexpr (Q == 1) place = row[k];
            if constexpr (Q == 2) store1(&place, row[k]);
            if constexpr (Q == 4) total += place = int8_t(scale > 0.0f ? std::lrint(row[k] / scale) : 0);
        }
        to.scale[n] = scale, to.total[n] = total;
    });
}

// The same in int8, of whole numbers and a scale for each row.
void pack_whole(Matrix& to, int N, int K, const int8_t* weight, const float* scale, const float* bias, float padding) {
    to.size(N, K, words_of<Int8>(K), padding);
    auto* out = (int32_t*)to.packed.get();
    each(threads(), N, [&](int64_t n) {
        const int8_t* row = weight + n * K;
        int32_t total = 0;
        for (int k = 0; k < K; k++) total += row[k];
        for (int k = 0; k < K / 4; k++) std::memcpy(out + (n / PANEL * to.words + k) * PANEL + n % PANEL, row + 4 * k, 4);
        to.bias[n] = bias ? bias[n] : 0.0f, to.scale[n] = scale[n], to.total[n] = float(total);
    });
}

// The words of a packed matrix, a column after the other, for those who take some columns of it.
Block unpacked(const Matrix& from) {
    Block made = block(checked_product({from.N, from.words, 4}));
    auto* out = (int32_t*)made.get();
    auto* in = (const int32_t*)from.packed.get();
    each(threads(), from.N, [&](int64_t n) {
        for (int k = 0; k < from.words; k++) out[n * from.words + k] = in[(n / PANEL * from.words + k) * PANEL + n % PANEL];
    });
    return made;
}

// From number k on, W numbers of a column of a packed matrix that is not in bfloat16.
template <class Kind> Floats load_packed(const Matrix& from, int64_t n, int k) {
    constexpr int Q = Kind::PER_WORD;
    static_assert(Q != 2);
    const auto* words = (const int32_t*)from.packed.get() + (n / PANEL * from.words + k / Q) * PANEL + n % PANEL;
    alignas(64) int32_t found[W / Q];
    for (int i = 0; i < W / Q; i++) found[i] = words[i * PANEL];
    if constexpr (Q == 1) return load((const float*)found);
    else return __builtin_convertvector(*(const SignedBytes*)found, Floats) * from.scale[n];
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
    if constexpr (Kind::PER_WORD == 2) {
        for (int k = 0; k < K; k += W) store((bf16*)to + k, load(x + k));
        std::fill(to + K / 2, to + words_of<Kind>(K), 0);  // what an earlier row has left there may be no number
    }
    if constexpr (Kind::PER_WORD == 4) {
        Floats least = load(x), most = least;
        for (int k = W; k < K; k += W) least = -larger(-least, -load(x + k)), most = larger(most, load(x + k));
        float low = smallest(least), range = largest(most) - low;
        float shrink = range > 0.0f ? Kind::LARGEST / range : 0.0f, scale = range / Kind::LARGEST;
        rows.low[row] = Kind::SIGNED ? low + 128.0f * scale : low, rows.scale[row] = scale;
        for (int k = 0; k < K; k += W) {
            Words u = (Words)((load(x + k) - low) * shrink + 12582912.0f);  // the lowest byte is the rounded number
            *(Bytes*)((char*)to + k) = __builtin_convertvector((Kind::SIGNED ? u ^ 0x80u : u) & 0xffu, Bytes);
        }
    }
}

#ifdef __ARM_FEATURE_MATMUL_INT8
// Two rows times two columns, eight bytes of each, in one instruction; out (ROWS, PANEL).
template <int ROWS> void tile_of_pairs(int words, const int32_t* a, int64_t stride, const char* b, int32_t* out) {
    constexpr int PAIRS = (ROWS + 1) / 2;
    for (int column = 0; column < PANEL; column += 8) {
        int32x4_t s[PAIRS][4];  // of two columns each: the first row's sums, and the second's
        for (auto& pair : s)
            for (int32x4_t& each : pair) each = vdupq_n_s32(0);
        const int32_t* from = (const int32_t*)b + column;
        for (int k = 0; k < words; k += 2, from += 2 * PANEL) {
            int8x16_t y[4];
            for (int v = 0; v < 2; v++) {
                const int32x4_t one = vld1q_s32(from + 4 * v), other = vld1q_s32(from + PANEL + 4 * v);
                y[2 * v] = (int8x16_t)vzip1q_s32(one, other), y[2 * v + 1] = (int8x16_t)vzip2q_s32(one, other);
            }
            for (int p = 0; p < PAIRS; p++) {
                const int32_t *x = a + 2 * p * stride + k, *more = 2 * p + 1 < ROWS ? x + stride : x;
                const uint8x16_t rows = (uint8x16_t)vcombine_s32(vld1_s32(x), vld1_s32(more));
                for (int v = 0; v < 4; v++) s[p][v] = vusmmlaq_s32(s[p][v], rows, y[v]);
            }
        }
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < 4; v++) {
                const int32x4_t both = s[r / 2][v];
                vst1_s32(out + r * PANEL + column + 2 * v, r % 2 ? vget_high_s32(both) : vget_low_s32(both));
            }
    }
}
#endif

template <class Kind, int ROWS>
__attribute__((noinline)) void tile(int words, const int32_t* a, int64_t stride, const char* b, typename Kind::Sums* out) {
#ifdef __ARM_FEATURE_MATMUL_INT8
    if constexpr (Kind::PER_WORD == 4 && ROWS > 1) return tile_of_pairs<ROWS>(words, a, stride, b, (int32_t*)out);
#endif
    for (int at = 0; at < PANEL * 4; at += V * LANE) {
        typename Kind::Sum s[ROWS][V] = {};
        const char* from = b + at;
        for (int k = 0; k < words; k++, from += PANEL * 4) {
            IntLane y[V];
            if (ROWS < 5)  // so few rows wait for the memory: what is needed soon is asked for across the borders of pages
                for (int line = 0; line < V * LANE; line += 64) __builtin_prefetch(from + 16 * PANEL * 4 + line);
            else  // the next panel
                for (int line = 0; line < V * LANE; line += 64) __builtin_prefetch(from + words * PANEL * 4 + line, 0, 2);
            for (int v = 0; v < V; v++) y[v] = *(const IntLane*)(from + v * LANE);
            for (int r = 0; r < ROWS; r++)
                for (int v = 0; v < V; v++) s[r][v] = Kind::step(s[r][v], a[r * stride + k], y[v]);
        }
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < V; v++) store((typename Kind::Sum*)((char*)(out + r * (PANEL / W)) + at) + v, s[r][v]);
    }
}

// Calls put(row, column, y) with the PANEL outputs from each `column` on of the rows from `from` to `to`; columns from w.N
// on are padding. Rows are cut into so many chunks; with one, a thread's panels do not depend on the number of rows.
template <class Kind, class Put>
void multiply(const Matrix& w, Rows& a, Team& team, Put put, int from, int to, int chunks) {
    typedef typename Kind::Sums Sums;
    static constexpr void (*TILES[6])(int, const int32_t*, int64_t, const char*, Sums*) = {
        tile<Kind, 1>, tile<Kind, 2>, tile<Kind, 3>, tile<Kind, 4>, tile<Kind, std::min(R, 5)>, tile<Kind, R>};
    const bool whole = tiled<Kind>(to - from);
    const int most = whole ? Tiles<Kind>::MOST : R;
    Tiles<Kind> tiles;
    auto [first, last] = team.share(w.panels * chunks);
    for (int task = first; task < last; task++) {
        int panel = task / chunks, column = panel * PANEL, chunk = task % chunks;
        const char* b = w.packed.get() + int64_t(panel) * w.words * PANEL * 4;
        int end = from + int(int64_t(to - from) * (chunk + 1) / chunks);
        for (int row = from + int(int64_t(to - from) * chunk / chunks), count; row < end; row += count) {
            int blocks = (end - row + most - 1) / most;
            count = whole ? std::min(most, end - row) : (end - row + blocks - 1) / blocks;
            alignas(64) Sums out[std::max(R, Tiles<Kind>::MOST) * (PANEL / W)];
            if (whole) tiles.multiply(count, w.words, a.at(row), a.stride, b, out);
            else TILES[count - 1](w.words, a.at(row), a.stride, b, out);
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

}  // namespace
