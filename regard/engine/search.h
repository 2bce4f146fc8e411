// The whole beam search of search/beam.py: many sentences at a time, one call a step.

#pragma once

#include <cmath>

#include "model.h"

namespace {

enum Stop { BOUND, FIRST, BEAM, FULL };

// The best outputs of a row that one thread has seen, and the sum of e^(output - peak) over all of them.
struct Best {
    float peak, floor;
    int count;
    Floats sums;
    float* values;
    int* tokens;

    void take(int keep, int column, const Floats* y) {
        if (above(larger(larger(y[0], y[1]), larger(y[2], y[3])), floor)) admit(keep, column, y);
        for (int v = 0; v < PANEL / W; v++) sums += exponential(y[v] - peak);
    }

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

template <class Kind> struct Sentence {
    typedef typename Kind::Kept Kept;
    int index = 0, length = 0, limit = 0, tokens = 0;
    Numbers<Kept> memory;             // (decoder layers, tokens, E + F)
    Matrix output;                        // of the tokens in its list, if it has one
    std::vector<Kept*> pages;             // each (decoder layers, PAGE, width, E + F)
    std::vector<std::vector<int>> ids;    // of each open hypothesis
    std::vector<std::vector<int>> trail;  // the row that wrote each of its positions
    std::vector<double> totals;
    std::vector<Hypothesis> finished;
    bool done = false;

    struct Candidate { double total; int row, token; };

    // The tokens that an open hypothesis may not go on with: an end that is too early, and what would end n in a row that are
    // there already.
    std::vector<int> banned(const std::vector<int>& written, const Settings& s) const {
        std::vector<int> found;
        if (length + 1 < s.minimum) found.push_back(int(s.end));
        const int64_t n = s.no_repeat, size = int64_t(written.size());
        for (int64_t i = 0; n > 0 && i + n <= size; i++)
            if (std::equal(written.begin() + i, written.begin() + i + n - 1, written.end() - (n - 1)))
                found.push_back(written[i + n - 1]);
        return found;
    }

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
        const size_t needed = s.stop == BEAM ? std::max(s.width, s.n_best) : s.n_best;
        const bool filled = finished.size() >= needed;
        const double best_penalty = std::max(penalties[length + 1], penalties[limit]);
        std::vector<std::vector<int>> new_ids, new_trail;
        totals.clear();
        for (const Candidate& c : found) {
            if (c.token == s.end || totals.size() == width) continue;
            // What cannot win any more need not go on: nor can what comes of it, and it stands behind all that still can.
            if (s.stop == BOUND && filled && finished[needed - 1].score >= c.total / best_penalty) break;
            new_ids.push_back(ids[c.row]), new_ids.back().push_back(c.token);
            new_trail.push_back(trail[c.row]), new_trail.back().push_back(c.row);
            totals.push_back(c.total);
        }
        ids.swap(new_ids), trail.swap(new_trail);
        done = cut || totals.empty() || (filled && (s.stop == FIRST || s.stop == BEAM));
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
    std::vector<std::vector<int>> banned;  // tokens that each row may not go on with
    Screening screening;

    Searching(Decoder<Kind>& model, Sources read, Settings settings, Embedding from, Embedding to)
        : Computing<Kind>(model, std::move(read), int(settings.threads), from, to), s(settings) {
        constexpr int64_t MOST = 1 << 20;
        auto within = [](const char* name, int64_t value, int64_t least) {
            if (value < least || value > MOST)
                fail("the search's %s is %lld; from %lld to %lld are possible", name, (long long)value, (long long)least,
                     (long long)MOST);
        };
        within("beam", s.width, 1), within("n_best", s.n_best, 1), within("batch", s.batch, 1), within("shares", s.shares, 1);
        within("threads", s.threads, 1);
        within("min_length", s.minimum, 0), within("no_repeat_ngram_size", s.no_repeat, 0);
        if (s.stop < BOUND || s.stop > FULL) fail("stop %lld is not known", (long long)s.stop);
        this->target.check("first target", s.begin);
        if (s.end < 0 || s.end >= m.z.vocabulary) fail("the end, %lld, is outside of the vocabulary", (long long)s.end);
        checked_product({m.z.decoder_layers, PAGE, s.width, m.stored, sizeof(Kept)});
        if (screens()) std::call_once(m.screened, [&] { m.screen.make(m.output); });
    }

    bool screens() const { return Screen<Kind>::KNOWN && sources.lists.empty() && m.output.N >= Screen<Kind>::LEAST; }

    // The most tokens of each sentence's hypotheses, and the length penalty of each length from 0 on.
    void limit(const int32_t* given, const double* penalty, int lengths) {
        limits.assign(given, given + sources.count());
        for (int most : limits) {
            this->target.check_length("target", most);
            if (most + 2 > lengths) fail("a target of %d tokens has no length penalty", most);
        }
        penalties.assign(penalty, penalty + lengths);
    }

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
            memory.push_back(block(checked_product({m.z.decoder_layers, PAGE, s.width, m.stored, sizeof(Kept)})));
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

    int go_on(std::chrono::nanoseconds time) override {
        const auto until = std::chrono::steady_clock::now() + time;
        do step();
        while (finished < int(results.size()) && std::chrono::steady_clock::now() < until);
        return finished;
    }

    void step() {
        while (live.size() < size_t(s.batch) && (!ready.empty() || next + 1 < int(sources.starts.size()))) {
            if (ready.empty()) encode();
            live.push_back(std::move(ready.back()));
            ready.pop_back();
        }
        if (live.empty()) return;
        std::vector<std::pair<One*, int>> of;  // each row's sentence and hypothesis
        int longest = 0;
        for (auto& one : live) {
            longest = std::max({longest, one->length + 1, one->tokens});
            if (one->length % PAGE == 0) one->pages.push_back(page());
            for (size_t j = 0; j < one->ids.size(); j++) of.push_back({one.get(), int(j)});
        }
        const int M = int(of.size());
        this->reserve(M, longest);
        banned.clear();
        size_t most = 0;  // candidates of a row are taken in that many more, so that enough are left
        if (s.minimum || s.no_repeat)
            for (auto [one, j] : of) banned.push_back(one->banned(one->ids[j], s)), most = std::max(most, banned.back().size());
        const int wanted = s.width == 1 && s.stop == FIRST ? 1 : int(2 * s.width);
        const int keep = int(std::min<int64_t>(wanted + int64_t(most), m.z.vocabulary));
        const size_t lists = size_t(s.shares) * M, kept = checked_product({s.shares, M, keep});
        if (best.size() < lists) best.resize(lists);
        if (values.size() < kept) values.resize(kept), tokens.resize(kept);
        if constexpr (Screen<Kind>::KNOWN)
            if (screens()) screening.reserve(std::max<int64_t>(M, std::min<int64_t>(s.batch, sources.count()) * s.width), m.screen.quick,
                                             s.threads);
        together(s.threads, [&](Team team) { decode(team, of, keep, wanted); });
        for (size_t i = 0; i < live.size();) {
            if (!live[i]->done) { i++; continue; }
            results[live[i]->index] = std::move(live[i]->finished);
            free_pages.insert(free_pages.end(), live[i]->pages.begin(), live[i]->pages.end());
            live[i] = std::move(live.back());
            live.pop_back();
            finished++;
        }
    }

    void decode(Team team, const std::vector<std::pair<One*, int>>& of, int keep, int wanted) {
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
        if (screens()) find_screened(team, keep);
        // As many shares as were asked for, however many threads there are: each has its own sum, so that the total of them
        // is the same, bit for bit.
        for (int share = team.id; share < s.shares && !screens(); share += team.size) {
            if (sources.lists.empty()) find_best({share, int(s.shares), team.barrier}, m.output, 0, M, keep);
            for (int row = 0, i = 0; row < M && !sources.lists.empty(); i++) {
                const One& one = *of[row].first;
                // Panels are shared out as they would be were the sentence alone; only who has which part goes round.
                Team other{int((share + i) % s.shares), int(s.shares), team.barrier};
                find_best(other, one.output, row, row + int(one.ids.size()), keep);
                row += int(one.ids.size());
            }
        }
        team.wait();
        auto [from, to] = team.share(int(live.size()));
        std::vector<typename One::Candidate> found;
        for (int i = from; i < to; i++) {
            found.clear();
            const int* list = sources.lists.empty() ? nullptr : sources.list(live[i]->index);
            for (int row = 0; row < M; row++) {
                if (of[row].first != live[i].get()) continue;
                const double total = live[i]->totals[of[row].second] - normaliser(row, M);
                if (!std::isfinite(total)) continue;  // weights that are not numbers: nothing can be said
                for (int t = 0; t < s.shares; t++) {
                    const Best& b = best[size_t(t) * M + row];
                    for (int k = 0, taken = 0; k < b.count && taken < wanted; k++) {
                        const int token = list ? list[b.tokens[k]] : b.tokens[k];
                        if (!banned.empty() && std::count(banned[row].begin(), banned[row].end(), token)) continue;
                        found.push_back({total + b.values[k], of[row].second, token}), taken++;
                    }
                }
            }
            live[i]->advance(found, s, penalties.data());
        }
    }

    // The best outputs of every row, as one share.
    void find_screened(Team& team, int keep) {
        if constexpr (Screen<Kind>::KNOWN) {
            const int M = rows.M;
            screening.compute(team, rows, m.output, m.screen, keep);
            team.wait();
            auto [first, last] = team.share(M);
            for (int row = first; row < last; row++) {
                for (int share = 0; share < s.shares; share++) forget(share, row, keep);
                for (int column = 0; column < screening.columns; column += PANEL) {
                    Floats y[PANEL / W];
                    for (int v = 0; v < PANEL / W; v++) y[v] = load(screening.of(row) + column + v * W);
                    best[row].take(keep, column, y);
                }
            }
        }
    }

    void forget(int share, int row, int keep) {
        const size_t list = size_t(share) * rows.M + row;
        best[list] = {LOWEST, LOWEST, 0, Floats{}, values.data() + list * keep, tokens.data() + list * keep};
    }

    // The best outputs of the rows from `from` to `to`: those of one share of the columns, which `team` names.
    void find_best(Team team, const Matrix& output, int from, int to, int keep) {
        const int M = rows.M;
        for (int row = from; row < to; row++) forget(team.id, row, keep);
        multiply<Kind>(output, rows, team, [&](int row, int column, const Floats* y) {
            best[size_t(team.id) * M + row].take(keep, column, y);
        }, from, to, 1);
    }

    // The logarithm of the sum of e^output over a row.
    double normaliser(int row, int M) const {
        double peak = LOWEST, total = 0.0;
        for (int t = 0; t < s.shares; t++) peak = std::max<double>(peak, best[size_t(t) * M + row].peak);
        for (int t = 0; t < s.shares; t++) {
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
    made->limit(limits, penalties, lengths);
    made->results.resize(count);
    return made;
}

}  // namespace
