#include "training/nn/parallel/experts/expert_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/collectives/tcp_backend.h"
#include "tests/collectives/world.h"
#include "tests/training/nn/parallel/counting_memory.h"
#include "tests/training/nn/parallel/experts/expert_traffic.h"

namespace geminid::collectives {
namespace {

using Values = std::vector<float>;
using Exact = std::vector<double>;

struct ExpertMatrices {
  Values w1, w3, w2;
  friend bool operator==(const ExpertMatrices&, const ExpertMatrices&) = default;
};

// A layer and all of its tokens.
struct Case {
  size_t tokens = 24, experts = 4, choices = 2, hidden = 12, inner = 20;
  Mixing mixing = Mixing::kOverChosen;
  double capacity_factor = 0;
  double balance = 0;  // in groups of `group` tokens
  size_t group = 3;

  ExpertLayerOptions options() const {
    return {.routing = {.experts = experts,
                        .choices = choices,
                        .mixing = mixing,
                        .capacity_factor = capacity_factor},
            .hidden = hidden,
            .inner = inner};
  }
};

struct Given {
  Values x, dy, router;
  std::vector<ExpertMatrices> experts;
};

Given RandomGiven(const Case& c) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto draw = [&](size_t count, float scale) {
    Values values(count);
    for (float& value : values) value = scale * normal(random);
    return values;
  };
  Given given = {.x = draw(c.tokens * c.hidden, 1),
                 .dy = draw(c.tokens * c.hidden, 1),
                 .router = draw(c.experts * c.hidden, 0.5F),
                 .experts = {}};
  for (size_t e = 0; e < c.experts; ++e) {
    given.experts.push_back({draw(c.inner * c.hidden, 0.3F), draw(c.inner * c.hidden, 0.3F),
                             draw(c.hidden * c.inner, 0.3F)});
  }
  return given;
}

struct Results {
  Values y, dx;                         // of all tokens
  Values drouter;                       // of all ranks, which must agree
  std::vector<ExpertMatrices> experts;  // of all, gradients
  size_t dropped = 0;
  friend bool operator==(const Results&, const Results&) = default;
};

// Tokens are cut evenly over the ranks of a backend.
Results RunOver(const Backend& backend, int ranks, const Case& c, const Given& given) {
  const auto p = static_cast<size_t>(ranks);
  const size_t own_tokens = c.tokens / p, own_experts = c.experts / p;
  Results results = {.y = Values(given.x.size()),
                     .dx = Values(given.x.size()),
                     .drouter = {},
                     .experts = given.experts};
  std::vector<Values> drouters(p, Values(given.router.size(), NAN));
  std::vector<size_t> dropped(p);
  for (ExpertMatrices& expert : results.experts) {
    for (Values* values : {&expert.w1, &expert.w3, &expert.w2}) {
      std::ranges::fill(*values, NAN);
    }
  }
  Communicators world = backend.connect(ranks, absl::Seconds(60));
  ForEachRank(world, [&](Communicator& rank) {
    const auto r = static_cast<size_t>(rank.Rank());
    CountingMemory memory;
    auto layer = ExpertLayer::Make(c.options(), rank, nullptr, memory);
    ASSERT_TRUE(layer.ok()) << layer.status();
    std::vector<ExpertLayer::Expert> experts;
    std::vector<ExpertLayer::ExpertGradients> gradients;
    for (size_t e = r * own_experts; e < (r + 1) * own_experts; ++e) {
      experts.push_back({given.experts[e].w1, given.experts[e].w3, given.experts[e].w2});
      gradients.push_back({results.experts[e].w1, results.experts[e].w3, results.experts[e].w2});
    }
    const auto own = [&](auto& values) {
      return std::span(values).subspan(r * own_tokens * c.hidden, own_tokens * c.hidden);
    };
    const ExpertLayer::Parameters parameters = {given.router, experts};
    auto passed = (*layer)->Forward(own(given.x), parameters, own(results.y));
    ASSERT_TRUE(passed.ok()) << passed.status();
    dropped[r] = passed->routing.dropped();
    // What came back, what went into this rank's experts, and what their activations read.
    const size_t kept = passed->exchange.rows_at_tokens() * c.hidden +
                        passed->exchange.rows_at_experts() * (c.hidden + 2 * c.inner);
    EXPECT_EQ(memory.in_use_bytes(), sizeof(float) * kept);
    const auto received = [&] {
      uint64_t bytes = 0;
      for (const PeerTraffic& peer : rank.Stats().peers) bytes += peer.bytes_received;
      return bytes;
    };
    const uint64_t forward = received();
    ASSERT_EQ((*layer)->Backward(own(given.x), parameters, *passed, own(given.dy),
                                 {.scale = c.balance, .group = c.group},
                                 {own(results.dx), drouters[r], gradients}),
              absl::OkStatus());
    const size_t first = passed->routing.first[r * own_experts];
    const size_t kept_here = passed->routing.first[(r + 1) * own_experts] - first;
    const ExpertTraffic traffic = {.ranks = p,
                                   .experts = c.experts,
                                   .hidden = c.hidden,
                                   .rows_away = passed->routing.rows.size() - kept_here,
                                   .rows_here = passed->exchange.rows_at_experts() - kept_here};
    EXPECT_EQ(forward, traffic.ForwardBytes());
    EXPECT_EQ(received() - forward, traffic.BackwardBytes());
    EXPECT_EQ(memory.in_use_bytes(), sizeof(float) * kept);
  });
  results.drouter = drouters[0];
  for (const Values& drouter : drouters) EXPECT_EQ(drouter, results.drouter);
  for (const size_t count : dropped) results.dropped += count;
  return results;
}

// The layer as its paper has it, one token and one expert at a time, in float64. Of `ranks` ranks
// each has its own capacity.
class Dense {
 public:
  Dense(const Case& c, const Given& g, size_t ranks) : c_(c), g_(g) {
    y.resize(g.x.size());
    dx.resize(g.x.size());
    drouter.resize(g.router.size());
    dw1.resize(c.experts, Exact(c.inner * c.hidden));
    dw3 = dw1;
    dw2 = dw1;
    const size_t tokens = c.tokens / ranks;
    for (size_t rank = 0; rank < ranks; ++rank) {
      for (size_t t = rank * tokens; t < (rank + 1) * tokens; ++t) Score(t);
      const double even = static_cast<double>(c.choices * tokens) / static_cast<double>(c.experts);
      const auto capacity = static_cast<size_t>(std::ceil(c.capacity_factor * even));
      std::vector<size_t> load(c.experts);
      for (size_t choice = 0; choice < c.choices; ++choice) {
        for (size_t t = rank * tokens; t < (rank + 1) * tokens; ++t) {
          const size_t e = chosen_[t][choice];
          if (c.capacity_factor > 0 && load[e]++ >= capacity) {
            ++dropped;
            continue;
          }
          RunExpert(t, e);
        }
      }
    }
    for (size_t t = 0; t < c.tokens; ++t) RouterBackward(t);
  }

  Exact y, dx, drouter;
  std::vector<Exact> dw1, dw3, dw2;
  size_t dropped = 0;

 private:
  double X(size_t t, size_t h) const { return static_cast<double>(g_.x[t * c_.hidden + h]); }

  void Score(size_t t) {
    Exact z(c_.experts);
    for (size_t e = 0; e < c_.experts; ++e) {
      for (size_t h = 0; h < c_.hidden; ++h) {
        z[e] += X(t, h) * static_cast<double>(g_.router[e * c_.hidden + h]);
      }
    }
    std::vector<size_t> order(c_.experts);
    for (size_t e = 0; e < c_.experts; ++e) order[e] = e;
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return z[a] > z[b]; });
    order.resize(c_.choices);
    Exact p(c_.experts), w(c_.experts);
    double all = 0, some = 0;
    for (size_t e = 0; e < c_.experts; ++e) all += p[e] = std::exp(z[e]);
    for (const size_t e : order) some += p[e];
    for (const size_t e : order) w[e] = p[e] / (c_.mixing == Mixing::kOverChosen ? some : all);
    for (double& share : p) share /= all;
    chosen_.push_back(order);
    p_.push_back(p);
    w_.push_back(w);
    dw_.emplace_back(c_.experts);
  }

  // Adds expert e's part in all results of token t.
  void RunExpert(size_t t, size_t e) {
    const ExpertMatrices& m = g_.experts[e];
    const double weight = w_[t][e];
    Exact out(c_.hidden);
    for (size_t i = 0; i < c_.inner; ++i) {
      double gate = 0, up = 0, dinner = 0;
      for (size_t h = 0; h < c_.hidden; ++h) {
        gate += X(t, h) * static_cast<double>(m.w1[i * c_.hidden + h]);
        up += X(t, h) * static_cast<double>(m.w3[i * c_.hidden + h]);
        dinner += static_cast<double>(g_.dy[t * c_.hidden + h]) *
                  static_cast<double>(m.w2[h * c_.inner + i]);
      }
      const double s = 1 / (1 + std::exp(-gate)), inner = gate * s * up;
      const double dgate = weight * dinner * up * s * (1 + gate * (1 - s));
      const double dup = weight * dinner * gate * s;
      for (size_t h = 0; h < c_.hidden; ++h) {
        const auto w2 = static_cast<double>(m.w2[h * c_.inner + i]);
        out[h] += inner * w2;
        dw2[e][h * c_.inner + i] += weight * static_cast<double>(g_.dy[t * c_.hidden + h]) * inner;
        dw1[e][i * c_.hidden + h] += dgate * X(t, h);
        dw3[e][i * c_.hidden + h] += dup * X(t, h);
        dx[t * c_.hidden + h] += dgate * static_cast<double>(m.w1[i * c_.hidden + h]) +
                                 dup * static_cast<double>(m.w3[i * c_.hidden + h]);
      }
    }
    for (size_t h = 0; h < c_.hidden; ++h) {
      y[t * c_.hidden + h] += weight * out[h];
      dw_[t][e] += out[h] * static_cast<double>(g_.dy[t * c_.hidden + h]);
    }
  }

  // d(weight of e) / dz_j and d(balance) / dz_j by the softmax's Jacobian, whole.
  void RouterBackward(size_t t) {
    Exact dp(c_.experts);  // of the probabilities over all
    const std::vector<size_t>& chosen = chosen_[t];
    double some = 0, mix = 0;
    for (const size_t e : chosen) {
      some += p_[t][e];
      mix += dw_[t][e] * p_[t][e];
    }
    for (const size_t e : chosen) {
      // w_e = p_e / some, or p_e.
      dp[e] +=
          c_.mixing == Mixing::kOverChosen ? dw_[t][e] / some - mix / (some * some) : dw_[t][e];
    }
    for (size_t e = 0; e < c_.experts; ++e) dp[e] += c_.balance * BalanceSlope(t, e);
    for (size_t j = 0; j < c_.experts; ++j) {
      double dz = 0;
      for (size_t e = 0; e < c_.experts; ++e) {
        dz += dp[e] * p_[t][e] * ((e == j ? 1 : 0) - p_[t][j]);
      }
      for (size_t h = 0; h < c_.hidden; ++h) {
        drouter[j * c_.hidden + h] += dz * X(t, h);
        dx[t * c_.hidden + h] += dz * static_cast<double>(g_.router[j * c_.hidden + h]);
      }
    }
  }

  // experts f_e P_e of the token's group, by p_te.
  double BalanceSlope(size_t t, size_t e) const {
    const size_t first = t / c_.group * c_.group;
    double choices = 0;
    for (size_t u = first; u < first + c_.group; ++u) {
      choices += static_cast<double>(std::ranges::count(chosen_[u], e));
    }
    const auto group = static_cast<double>(c_.group);
    return static_cast<double>(c_.experts) * (choices / group) / group;
  }

  const Case& c_;
  const Given& g_;
  std::vector<std::vector<size_t>> chosen_;
  std::vector<Exact> p_, w_, dw_;
};

void ExpectClose(const char* what, const Exact& want, const Values& got) {
  double largest = 0;
  for (const double value : want) largest = std::max(largest, std::abs(value));
  EXPECT_GT(largest, 0) << what;
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(want[i], got[i], 1e-5 * largest) << what << "[" << i << "]";
  }
}

void ExpectDense(const Case& c, int ranks) {
  const Given given = RandomGiven(c);
  const Results got = RunOver(LocalBackend(), ranks, c, given);
  const Dense want(c, given, static_cast<size_t>(ranks));
  EXPECT_EQ(got.dropped, want.dropped);
  ExpectClose("y", want.y, got.y);
  ExpectClose("dx", want.dx, got.dx);
  ExpectClose("drouter", want.drouter, got.drouter);
  for (size_t e = 0; e < c.experts; ++e) {
    ExpectClose("dW1", want.dw1[e], got.experts[e].w1);
    ExpectClose("dW3", want.dw3[e], got.experts[e].w3);
    ExpectClose("dW2", want.dw2[e], got.experts[e].w2);
  }
}

TEST(ExpertLayer, OverOneTwoAndFourRanks_IsTheDenseLayerInFloat64) {
  for (const int ranks : {1, 2, 4}) {
    ExpectDense({}, ranks);
    ExpectDense({.experts = 8, .choices = 1, .mixing = Mixing::kOverAll, .balance = 0.1}, ranks);
    ExpectDense({.choices = 3, .balance = 0.5}, ranks);
  }
}

TEST(ExpertLayer, WithACapacity_DropsTheSameTokensAsTheDenseLayer) {
  for (const int ranks : {1, 2, 4}) {
    const Case c = {.capacity_factor = 0.75, .balance = 0.1};
    EXPECT_GT(RunOver(LocalBackend(), ranks, c, RandomGiven(c)).dropped, 0u);
    ExpectDense(c, ranks);
  }
}

// The router's gradient is added up over the ranks, and rounded otherwise.
TEST(ExpertLayer, OverAnyNumberOfRanks_HasTheBitsOfOne) {
  const Case c = {.balance = 0.1};
  const Given given = RandomGiven(c);
  const Results one = RunOver(LocalBackend(), 1, c, given);
  for (const int ranks : {2, 4}) {
    Results more = RunOver(LocalBackend(), ranks, c, given);
    more.drouter = one.drouter;
    EXPECT_TRUE(more == one) << ranks;
  }
}

TEST(ExpertLayer, OverEveryBackendAndInEveryRun_HasTheSameBits) {
  const Case c = {.capacity_factor = 1, .balance = 0.1};
  const Given given = RandomGiven(c);
  const Results expected = RunOver(LocalBackend(), 4, c, given);
  for (const Backend& backend : {LocalBackend(), ShmBackend(), TcpBackend()}) {
    EXPECT_TRUE(RunOver(backend, 4, c, given) == expected) << backend.name;
  }
}

// A router's gradient of more than kDirectAllReduceBytes goes in slices.
TEST(ExpertLayer, WithALargeRouter_ReceivesWhatTheClosedFormSays) {
  const Case c = {.tokens = 8, .experts = 8, .hidden = 2048, .inner = 4, .group = 1};
  const Given given = RandomGiven(c);
  ASSERT_GT(given.router.size() * sizeof(float), kDirectAllReduceBytes);
  for (const int ranks : {2, 4, 8}) (void)RunOver(LocalBackend(), ranks, c, given);
}

// All tokens prefer the first two experts: the others, and their ranks, get no rows.
TEST(ExpertLayer, ExpertsWithoutTokens_GetGradientsOfZeros) {
  Case c;
  Given given = RandomGiven(c);
  for (float& value : given.x) value = std::abs(value);
  for (size_t i = 0; i < given.router.size(); ++i) {
    given.router[i] = i < 2 * c.hidden ? 1.0F : -1.0F;
  }
  for (const int ranks : {1, 2, 4}) {
    const Results got = RunOver(LocalBackend(), ranks, c, given);
    for (size_t e = 0; e < c.experts; ++e) {
      for (const Values* values : {&got.experts[e].w1, &got.experts[e].w3, &got.experts[e].w2}) {
        const bool zeros = std::ranges::all_of(*values, [](float value) { return value == 0; });
        EXPECT_EQ(zeros, e >= 2) << e;
      }
    }
  }
}

TEST(ExpertLayer, SpansOfWrongSizes_AreRefusedBeforeAnythingIsSent) {
  Communicators world = LocalBackend().connect(2, absl::Seconds(60));
  ForEachRank(world, [](Communicator& rank) {
    const Case c = {.experts = 2, .choices = 1, .hidden = 2, .inner = 3};
    auto layer = ExpertLayer::Make(c.options(), rank);
    ASSERT_TRUE(layer.ok()) << layer.status();
    const Values x(4), router(4), w(6), wrong(5);
    Values y(4);
    const std::vector<ExpertLayer::Expert> good = {{w, w, w}}, bad = {{w, wrong, w}};
    EXPECT_THAT(std::string((*layer)->Forward(wrong, {router, good}, y).status().message()),
                testing::HasSubstr("X has 5 elements, which are not whole tokens of 2"));
    EXPECT_THAT(std::string((*layer)->Forward(x, {router, bad}, y).status().message()),
                testing::HasSubstr("W3 has 5 elements"));
    EXPECT_THAT(std::string((*layer)->Forward(x, {router, {}}, y).status().message()),
                testing::HasSubstr("0 experts are given; this rank has 1"));
    EXPECT_EQ(rank.Stats().peers[static_cast<size_t>(1 - rank.Rank())], PeerTraffic{});
  });
  EXPECT_THAT(
      std::string(ExpertLayer::Make(
                      {.routing = {.experts = 3, .choices = 1}, .hidden = 2, .inner = 2}, *world[0])
                      .status()
                      .message()),
      testing::HasSubstr("3 experts cannot be spread over 2 ranks"));
}

}  // namespace
}  // namespace geminid::collectives
