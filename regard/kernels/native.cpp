// The training step's parts that are not large matrix products, each in one pass over memory, for float32 and bfloat16.
//
// Plain C functions over raw pointers: no PyTorch header is needed, so that building takes seconds. They are held equal
// to their references in PyTorch by tests. Products and sums are float32 inside, whatever the type outside. A result
// below 0 is a failure, which `error_message()` explains.

#include <memory>

#include "attention.h"
#include "loss.h"
#include "norm.h"
#include "rotary.h"

namespace {

// -- label-smoothed cross-entropy --------------------------------------------------------------------------------------

// Logits (n, V) become the gradient of the loss, in place; each row's loss goes to `losses`. A target < 0 is padding.
template <class T>
void smoothed(T* logits, int64_t n, int64_t V, const int64_t* targets, float smoothing, float* losses) {
    check_targets(targets, n, V);
    const int64_t most = threads();
    std::unique_ptr<float[]> space(new float[checked_product({most, V})]);
    together(int(most), [&](Team team) {
        team.each(n, [&](int64_t i) { losses[i] = smoothed_row(logits + i * V, V, targets[i], smoothing, space.get() + team.id * V); });
    });
}

// Two predictions' logits (n, V) become the gradients of their divergence, in place, and zeros where the target is < 0.
template <class T> void diverging(T* x, T* y, int64_t n, int64_t V, const int64_t* targets, float* found) {
    const int64_t most = threads();
    std::unique_ptr<float[]> space(new float[checked_product({most, 2, V})]);
    together(int(most), [&](Team team) {
        team.each(n, [&](int64_t i) {
            T *one = x + i * V, *other = y + i * V;
            found[i] = targets[i] < 0 ? 0 : diverging_row(one, other, V, space.get() + team.id * 2 * V);
            if (targets[i] < 0)
                for (T* row : {one, other}) std::memset((void*)row, 0, V * sizeof(T));
        });
    });
}

}  // namespace

#define FOR(T, NAME)                                                                                                   \
    ENTRY(int64_t, attend_##NAME)(const T* q, int64_t qh, int64_t qr, const T* k, int64_t kh, int64_t kr, const T* v,\
                                     int64_t vh, int64_t vr, T* out, int64_t oh, int64_t orow, const int32_t* qs,      \
                                     const int32_t* ks, int B, int H, int D, int E, int causal) {                      \
        return guarded([&] {                                                                                           \
            return of_kind<T>(D % 2 == 0 && E % 2 == 0, [&](auto kind) {                                               \
                attend<decltype(kind), T>({q, qh, qr}, {k, kh, kr}, {v, vh, vr}, {out, oh, orow}, qs, ks, B, H, D, E,  \
                                          causal);                                                                     \
                return 0;                                                                                              \
            });                                                                                                        \
        });                                                                                                            \
    }                                                                                                                  \
    ENTRY(int64_t, attend_back_##NAME)(const T* q, int64_t qh, int64_t qr, const T* k, int64_t kh, int64_t kr,      \
                                          const T* v, int64_t vh, int64_t vr, const T* g, int64_t gh, int64_t gr, T* dq,\
                                          int64_t dqh, int64_t dqr, T* dk, int64_t dkh, int64_t dkr, T* dv,            \
                                          int64_t dvh, int64_t dvr, const int32_t* qs, const int32_t* ks, int B, int H,\
                                          int D, int E, int causal) {                                                  \
        return guarded([&] {                                                                                           \
            return of_kind<T>(D % 2 == 0 && E % 2 == 0, [&](auto kind) {                                               \
                attend_back<decltype(kind), T>({q, qh, qr}, {k, kh, kr}, {v, vh, vr}, {g, gh, gr}, {dq, dqh, dqr},     \
                                               {dk, dkh, dkr}, {dv, dvh, dvr}, qs, ks, B, H, D, E, causal);            \
                return 0;                                                                                              \
            });                                                                                                        \
        });                                                                                                            \
    }                                                                                                                  \
    ENTRY(int64_t, smoothed_##NAME)(T* x, int64_t n, int64_t V, const int64_t* y, float smoothing, float* losses) { \
        return guarded([&] { return smoothed<T>(x, n, V, y, smoothing, losses), 0; });                                 \
    }                                                                                                                  \
    ENTRY(int64_t, diverging_##NAME)(T* x, T* y, int64_t n, int64_t V, const int64_t* targets, float* found) {      \
        return guarded([&] { return diverging<T>(x, y, n, V, targets, found), 0; });                                   \
    }                                                                                                                  \
    ENTRY(int64_t, drop_add_##NAME)(const T* x, const T* y, T* out, int64_t n, uint32_t dropped, float scale,       \
                                       uint32_t seed, uint32_t other) {                                                \
        return guarded([&] { return drop_add<T>(x, y, out, n, {dropped, scale, seed, other}), 0; });                   \
    }                                                                                                                  \
    ENTRY(int64_t, norm_##NAME)(const T* x, const T* y, const T* gain, const T* bias, T* sum, T* out, float* kept,  \
                                   int64_t n, int D, float epsilon, uint32_t dropped, float scale, uint32_t seed,      \
                                   uint32_t other) {                                                                   \
        return guarded([&] {                                                                                           \
            return norm<T>(x, y, gain, bias, sum, out, kept, n, D, epsilon, {dropped, scale, seed, other}), 0;         \
        });                                                                                                            \
    }                                                                                                                  \
    ENTRY(int64_t, norm_back_##NAME)(const T* x, const T* gain, const T* g, const float* kept, T* dx, T* dy,        \
                                        float* partial, int shares, int64_t n, int D, uint32_t dropped, float scale,   \
                                        uint32_t seed, uint32_t other) {                                               \
        return guarded([&] {                                                                                           \
            return norm_back<T>(x, gain, g, kept, dx, dy, partial, shares, n, D, {dropped, scale, seed, other}), 0;    \
        });                                                                                                            \
    }                                                                                                                  \
    ENTRY(int64_t, turn_##NAME)(const T* x, T* out, const float* table, const int64_t* positions, int64_t xb,          \
                                int64_t xh, int64_t xt, int64_t ob, int64_t oh, int64_t ot, int64_t B, int64_t H,      \
                                int64_t tokens, int64_t D, int64_t P, float sign) {                                    \
        return guarded([&] {                                                                                           \
            return turn<T>(x, {xb, xh, xt}, out, {ob, oh, ot}, table, positions, B, H, tokens, D, P, sign), 0;         \
        });                                                                                                            \
    }

FOR(float, float32)
FOR(bf16, bfloat16)
