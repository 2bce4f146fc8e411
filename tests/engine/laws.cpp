// The decoder's laws without Python, for processors that are only emulated: a small model of made-up weights searches in
// every precision. A sentence alone must be found with the very bits that it is found with beside others; so must what the
// model makes of it by forced decoding, which must be what the search said. What is found is printed, to be compared with
// what another kind of processor finds.

#include "decoding.cpp"

namespace {

struct Found { std::vector<int32_t> ids; double scores[2]; int32_t ended; };
struct Made { std::vector<double> scores; std::vector<float> weights; };

std::vector<float> drawn(size_t n, uint32_t seed, float size) {
    std::vector<float> x(n);
    for (float& each : x) seed = seed * 1664525u + 1013904223u, each = size * (float(seed >> 8) / (1 << 23) - 1.0f);
    return x;
}

struct Toy {
    static constexpr int D = 32, I = 64, VOCABULARY = 90, LONGEST = 8;
    std::vector<std::vector<float>> kept;  // norms are read where they lie
    std::vector<float> table = drawn(VOCABULARY * D, 1, 1.0f);
    void* model;

    explicit Toy(int kind) {
        const int64_t sizes[] = {D, 2, 16, 16, I, 1, 1, VOCABULARY, 0, 0, D};
        const int64_t heads[] = {2, 2, 2};
        model = decoder_new(kind, sizes, heads, 1e-5f);
        auto matrix = [&](int n, int k) { add(drawn(size_t(n) * k, uint32_t(kept.size() + 7), 0.3f), drawn(n, 3, 0.1f)); };
        auto norm = [&] { add(std::vector<float>(D, 1.0f), std::vector<float>(D, 0.0f)); };
        for (bool decoder : {false, true}) {
            matrix(3 * D, D), matrix(D, D), norm();
            if (decoder) matrix(D, D), matrix(2 * D, D), matrix(D, D), norm();
            matrix(I, D), matrix(D, I), norm();
        }
        matrix(VOCABULARY, D);
    }
    void add(std::vector<float> first, std::vector<float> second) {
        kept.push_back(std::move(first)), kept.push_back(std::move(second));
        const auto &a = kept[kept.size() - 2], &b = kept.back();
        if (decoder_add(model, a.data(), a.size(), b.data(), b.size(), nullptr, 0) < 0) std::printf("%s\n", error_message());
    }
    std::vector<Found> search(const std::vector<std::vector<int32_t>>& sources, int threads) {
        std::vector<int32_t> ids, limits(sources.size(), LONGEST);
        std::vector<int64_t> starts{0};
        for (const auto& one : sources) ids.insert(ids.end(), one.begin(), one.end()), starts.push_back(int64_t(ids.size()));
        const Tables tables{{table.data(), table.data()}, {nullptr, nullptr}, {nullptr, nullptr}, {VOCABULARY, VOCABULARY}, {0, 0}, {1.0f, 1.0f}};
        double penalties[LONGEST + 2];
        for (int length = 0; length < LONGEST + 2; length++) penalties[length] = std::max(length, 1);
        const int64_t settings[] = {3, 1, 2, FULL, 2, 3, threads, threads, 1, 0};
        void* search = search_new(model, int(sources.size()), ids.data(), starts.data(), nullptr, nullptr, &tables,
                                  limits.data(), penalties, LONGEST + 2, settings);
        for (int64_t done = 0; search && done >= 0 && done < int64_t(sources.size());) done = search_go_on(search);
        if (!search || search_found(search, 0) < 1) { std::printf("nothing is found: %s\n", error_message()); std::exit(1); }
        std::vector<Found> all(sources.size());
        for (size_t i = 0; i < sources.size() && search; i++) {
            all[i].ids.resize(LONGEST);
            all[i].ids.resize(search_get(search, int(i), 0, all[i].ids.data(), all[i].scores, &all[i].ended));
        }
        search_free(search);
        return all;
    }
    Made force(const std::vector<std::vector<int32_t>>& sources, const std::vector<Found>& found, int threads) {
        std::vector<int32_t> ids, tokens, wanted;
        std::vector<int64_t> starts{0}, ends{0};
        size_t weights = 0;
        for (size_t i = 0; i < sources.size(); i++) {
            const auto &source = sources[i], &target = found[i].ids;
            ids.insert(ids.end(), source.begin(), source.end()), starts.push_back(int64_t(ids.size()));
            tokens.push_back(2), tokens.insert(tokens.end(), target.begin(), target.end());
            wanted.insert(wanted.end(), target.begin(), target.end()), wanted.push_back(3);
            ends.push_back(int64_t(tokens.size())), weights += 2 * (target.size() + 1) * source.size();
        }
        const Tables tables{{table.data(), table.data()}, {nullptr, nullptr}, {nullptr, nullptr}, {VOCABULARY, VOCABULARY}, {0, 0}, {1.0f, 1.0f}};
        Made made{std::vector<double>(tokens.size()), std::vector<float>(weights)};
        const int32_t layer = 0;
        if (decoder_force(model, int(sources.size()), ids.data(), starts.data(), nullptr, nullptr, &tables, tokens.data(), wanted.data(),
                          ends.data(), 1.0, made.scores.data(), &layer, 1, made.weights.data(), threads) < 0)
            std::printf("%s\n", error_message()), std::exit(1);
        return made;
    }
};

}  // namespace

int main() {
    const std::vector<std::vector<int32_t>> sources{{5, 6, 7, 3}, {8, 3}, {9, 10, 11, 12, 13, 3}};
    for (int kind = 0; kind < 3; kind++) {
        Toy toy(kind);
        const auto together = toy.search(sources, 2);
        const Made forced = toy.force(sources, together, 2);
        size_t score = 0, weight = 0;
        for (size_t i = 0; i < sources.size(); i++) {
            const Found alone = toy.search({sources[i]}, 2)[0], &one = together[i];
            if (alone.ids != one.ids || alone.scores[0] != one.scores[0]) return std::printf("sentence %zu knows its neighbours\n", i), 1;
            const Made made = toy.force({sources[i]}, {one}, 3);
            double total = one.ended ? made.scores.back() : 0.0;
            for (size_t t = 0; t < one.ids.size(); t++) total += made.scores[t];
            if (std::fabs(total - one.scores[0]) > 1e-4) return std::printf("%g is found, and %g forced\n", one.scores[0], total), 1;
            for (double each : made.scores)
                if (each != forced.scores[score++]) return std::printf("target %zu knows its neighbours\n", i), 1;
            for (float each : made.weights)
                if (each != forced.weights[weight++]) return std::printf("the weights of %zu know its neighbours\n", i), 1;
            std::printf("%d %.4f", kind, one.scores[0]);
            for (int id : one.ids) std::printf(" %d", id);
            std::printf("\n");
        }
    }
}
