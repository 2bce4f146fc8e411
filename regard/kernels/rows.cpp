// What a search that is written elsewhere asks of rows of log-probabilities, in one pass over each.
//
// Sizes: N rows, V numbers in each, `stride` from one row to the next.

#include <limits>

#include "team.h"
#include "vectors.h"

namespace {

// The largest numbers of a row, largest first, of equals the first first. Where fewer than `keep` are above -inf, the
// others are -inf, or no numbers where the row has such.
template <class T> void likeliest_of(const T* row, int64_t V, int keep, double* values, int64_t* index) {
    constexpr T NONE = -std::numeric_limits<T>::infinity();
    T floor = NONE;
    int count = 0;
    auto admit = [&](int64_t i) {
        if (!(row[i] > floor)) return;
        int place = count < keep ? count++ : keep - 1;
        for (; place > 0 && values[place - 1] < row[i]; place--) values[place] = values[place - 1], index[place] = index[place - 1];
        values[place] = row[i], index[place] = i;
        if (count == keep) floor = T(values[keep - 1]);
    };
    int64_t i = 0;
    if constexpr (sizeof(T) == sizeof(float))
        for (; i + 4 * W <= V; i += 4 * W) {
            const T* at = row + i;
            Floats most = larger(larger(load(at), load(at + W)), larger(load(at + 2 * W), load(at + 3 * W)));
            if (!(largest(most) > floor)) continue;
            for (int64_t j = i; j < i + 4 * W; j++) admit(j);
        }
    for (; i < V; i++) admit(i);
    if (count == keep) return;
    const int64_t none = std::find_if(row, row + V, [](T x) { return x != x; }) - row;  // what is no number
    for (; count < keep; count++) values[count] = none < V ? row[none] : NONE, index[count] = none < V ? none : 0;
}

// The logarithm of the sum of e^(x * factor) over a row.
template <class T> double log_total_of(const T* row, int64_t V, double factor) {
    const float narrow = float(factor);
    T peak = row[0];
    for (int64_t i = 1; i < V; i++) peak = row[i] > peak ? row[i] : peak;
    if (!(peak > -1e30)) return peak;
    double total = 0.0;
    constexpr int64_t MANY = 64 * W;  // summed in float32
    int64_t i = 0;
    if constexpr (sizeof(T) == sizeof(float))
        while (i + W <= V) {
            Floats some{};
            for (int64_t end = std::min(i + MANY, V); i + W <= end; i += W) some += exponential((load(row + i) - peak) * narrow);
            total += sum(some);
        }
    for (; i < V; i++) total += std::exp((double(row[i]) - peak) * factor);
    return peak * factor + std::log(total);
}

template <class T>
int64_t likeliest(const T* rows, int64_t N, int64_t stride, int64_t V, int keep, double* values, int64_t* index) {
    return guarded([&] {
        if (keep < 1 || keep > V) fail("the likeliest %d of %lld", keep, (long long)V);
        each(threads(), N, [&](int64_t n) { likeliest_of(rows + n * stride, V, keep, values + n * keep, index + n * keep); });
        return 0;
    });
}

template <class T> int64_t log_totals(const T* rows, int64_t N, int64_t stride, int64_t V, double factor, double* totals) {
    return guarded([&] {
        if (V < 1 || !(factor > 0)) fail("rows of %lld numbers, times %g", (long long)V, factor);
        each(threads(), N, [&](int64_t n) { totals[n] = log_total_of(rows + n * stride, V, factor); });
        return 0;
    });
}

}  // namespace

// To values and index (N, keep).
ENTRY(int64_t, rows_likeliest_float32)
(const float* rows, int64_t N, int64_t stride, int64_t V, int keep, double* values, int64_t* index) {
    return likeliest(rows, N, stride, V, keep, values, index);
}
ENTRY(int64_t, rows_likeliest_float64)
(const double* rows, int64_t N, int64_t stride, int64_t V, int keep, double* values, int64_t* index) {
    return likeliest(rows, N, stride, V, keep, values, index);
}

// To totals (N,).
ENTRY(int64_t, rows_log_totals_float32)
(const float* rows, int64_t N, int64_t stride, int64_t V, double factor, double* totals) {
    return log_totals(rows, N, stride, V, factor, totals);
}
ENTRY(int64_t, rows_log_totals_float64)
(const double* rows, int64_t N, int64_t stride, int64_t V, double factor, double* totals) {
    return log_totals(rows, N, stride, V, factor, totals);
}
