// Products by the tiles of a processor (Intel's AMX): sixteen rows of a matrix at a time, 64 bytes of each.
//
// Whole numbers are summed exactly, so their tiles find what every other product of theirs does. Sums of bfloat16 are
// rounded in an order of the tiles' own, so where there are tiles they multiply every row, however few there are.

#pragma once

#include "numbers.h"
#include "permission.h"

#if defined(__AMX_INT8__) && defined(__AMX_BF16__)
#define HAS_TILES
#endif

namespace {

constexpr int TILE = 16;  // rows of a tile; words of a row in one

#ifdef HAS_TILES
template <int T> inline void tile_zero() { asm volatile("tilezero %%tmm%c0" ::"i"(T)); }
template <int T> inline void tile_load(const void* at, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(at), "r"(stride), "i"(T) : "memory");
}
template <int T> inline void tile_store(void* at, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(at), "r"(stride), "i"(T) : "memory");
}
// Tile S += rows in tile A times columns in tile B.
template <class Kind, int S, int A, int B> inline void tile_add() {
    if constexpr (Kind::PER_WORD == 4) asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(S), "i"(A), "i"(B));
    if constexpr (Kind::PER_WORD == 2) asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(S), "i"(A), "i"(B));
}

// The tiles of this thread while it multiplies. They are given back: the system saves what is in use at each change of threads.
template <class Kind> class Tiles {
    int rows = 0;  // of tiles 0 to 5; 6 and 7 are always whole

    void shape(int count) {
        if (count == rows) return;
        struct alignas(64) { uint8_t palette = 1, start = 0, none[14]{}; uint16_t bytes[16]{}; uint8_t rows[16]{}; } shapes;
        for (int t = 0; t < 8; t++) shapes.bytes[t] = 64, shapes.rows[t] = uint8_t(t < 5 ? count : TILE);
        if (count > TILE) std::fill_n(shapes.rows, 8, TILE);
        asm volatile("ldtilecfg %0" ::"m"(shapes));
        rows = count;
    }

public:
    static constexpr bool KNOWN = Kind::PER_WORD > 1;
    static constexpr int MOST = 2 * TILE;  // rows at a time

    Tiles() {}
    Tiles(const Tiles&) = delete;
    ~Tiles() {
        if (rows) asm volatile("tilerelease");
    }

    // out (count, PANEL) = rows at a, `stride` words apart, times a panel.
    void multiply(int count, int words, const int32_t* a, int64_t stride, const char* b, typename Kind::Sums* out) {
        constexpr int LINE = PANEL * 4;
        char* to = (char*)out;
        stride *= 4;
        shape(std::min(count, TILE + 1));
        if (count > TILE) {
            const char *x = (const char*)a, *more = x + TILE * stride;
            for (int half = 0; half < LINE; half += LINE / 2) {
                tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
                const char* from = b + half;
                for (int k = 0; k < words; k += TILE, from += TILE * LINE) {
                    tile_load<4>(x + k * 4, stride), tile_load<6>(from, LINE), tile_load<7>(from + 64, LINE);
                    tile_add<Kind, 0, 4, 6>(), tile_add<Kind, 1, 4, 7>();
                    tile_load<5>(more + k * 4, stride);
                    tile_add<Kind, 2, 5, 6>(), tile_add<Kind, 3, 5, 7>();
                }
                tile_store<0>(to + half, LINE), tile_store<1>(to + half + 64, LINE);
                tile_store<2>(to + TILE * LINE + half, LINE), tile_store<3>(to + TILE * LINE + half + 64, LINE);
            }
        } else {
            tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
            for (int k = 0; k < words; k += TILE, b += TILE * LINE) {
                tile_load<4>(a + k, stride);
                tile_load<5>(b, LINE), tile_add<Kind, 0, 4, 5>(), tile_load<6>(b + 64, LINE), tile_add<Kind, 1, 4, 6>();
                tile_load<7>(b + 128, LINE), tile_add<Kind, 2, 4, 7>(), tile_load<5>(b + 192, LINE), tile_add<Kind, 3, 4, 5>();
            }
            tile_store<0>(to, LINE), tile_store<1>(to + 64, LINE), tile_store<2>(to + 128, LINE), tile_store<3>(to + 192, LINE);
        }
    }
};
#else
template <class Kind> struct Tiles {
    static constexpr bool KNOWN = false;
    static constexpr int MOST = 1;
    void multiply(int, int, const int32_t*, int64_t, const char*, typename Kind::Sums*) {}
};
#endif

// Whether so many rows are multiplied by tiles here.
template <class Kind> inline bool tiled(int rows) { return Tiles<Kind>::KNOWN && rows >= Kind::TILES_FROM && tiles_allowed(); }

}  // namespace
