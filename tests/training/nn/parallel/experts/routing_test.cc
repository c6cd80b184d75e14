#include "training/nn/parallel/experts/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace geminid::collectives {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> RandomLogits(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> logits(count);
  for (float& logit : logits) logit = 2 * normal(random);
  return logits;
}

TEST(Route, EachToken_ChoosesItsLargestLogits_OfEqualOnesTheLowerNumber) {
  const std::vector<float> logits = {0,  3,  1,  2,  //
                                     5,  5,  5,  5,  //
                                     -1, -3, -2, -1};
  const auto routing = Route({.experts = 4, .choices = 2}, logits);
  ASSERT_TRUE(routing.ok()) << routing.status();
  EXPECT_THAT(routing->chosen, ElementsAre(1, 3, 0, 1, 0, 3));
  EXPECT_THAT(routing->first, ElementsAre(0, 2, 4, 4, 6));
  EXPECT_THAT(routing->rows, ElementsAre(RoutedRow{1, 0}, RoutedRow{2, 0}, RoutedRow{0, 0},
                                         RoutedRow{1, 1}, RoutedRow{0, 1}, RoutedRow{2, 1}));
  EXPECT_EQ(routing->dropped(), 0u);
}

TEST(Route, Weights_AreTheSoftmaxOverTheChosenOrOverAll) {
  const std::vector<float> logits = {std::log(1.0F), std::log(2.0F), std::log(5.0F)};
  const auto chosen = Route({.experts = 3, .choices = 2, .mixing = Mixing::kOverChosen}, logits);
  const auto all = Route({.experts = 3, .choices = 2, .mixing = Mixing::kOverAll}, logits);
  EXPECT_NEAR(chosen->weights[0], 5.0 / 7, 1e-6);
  EXPECT_NEAR(chosen->weights[1], 2.0 / 7, 1e-6);
  EXPECT_NEAR(all->weights[0], 5.0 / 8, 1e-6);
  EXPECT_NEAR(all->weights[1], 2.0 / 8, 1e-6);
  for (const auto& routing : {chosen, all}) {
    EXPECT_NEAR(routing->probabilities[0], 1.0 / 8, 1e-6);
  }
}

TEST(Route, LargeLogits_DoNotOverflow) {
  const std::vector<float> logits = {3e38F, 1e38F, -3e38F};
  const auto routing = Route({.experts = 3, .choices = 2}, logits);
  EXPECT_THAT(routing->weights, ElementsAre(1, 0));
}

TEST(Route, LogitsThatAreNotFinite_AreRoutedToExpertsThatThereAre) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {kNaN, kNaN, kNaN, kNaN, 1, 2};
  const auto routing = Route({.experts = 3, .choices = 2}, logits);
  ASSERT_TRUE(routing.ok());
  EXPECT_EQ(routing->rows.size(), 4u);
  for (const uint32_t expert : routing->chosen) EXPECT_LT(expert, 3u);
  EXPECT_NE(routing->chosen[0], routing->chosen[1]);
  EXPECT_TRUE(std::isnan(routing->weights[0]));
}

TEST(Route, WithACapacityOfGroups_RoutesEachGroupAsItWouldAlone) {
  const RoutingOptions options = {
      .experts = 3, .choices = 2, .capacity_factor = 0.75, .capacity_group = 4};
  const std::vector<float> logits = RandomLogits(size_t{3} * 12, 3);
  const auto all = Route(options, logits);
  ASSERT_TRUE(all.ok()) << all.status();
  std::vector<RoutedRow> rows;
  for (size_t first = 0; first < 12; first += 4) {
    const auto one = Route(options, std::span(logits).subspan(3 * first, size_t{3} * 4));
    for (const RoutedRow& row : one->rows) rows.push_back({first + row.token, row.choice});
  }
  EXPECT_THAT(all->rows, testing::UnorderedElementsAreArray(rows));
  EXPECT_GT(all->dropped(), 0u);
  const auto uneven = Route({.experts = 3, .choices = 2, .capacity_group = 5}, logits);
  EXPECT_THAT(std::string(uneven.status().message()), HasSubstr("12 tokens cannot be divided"));
}

// Six tokens choose two of three experts each: the capacity is ceil(0.75 * 2 * 6 / 3) = 3.
TEST(Route, BeyondItsCapacity_DropsSecondChoicesFirstThenLaterTokens) {
  const std::vector<float> logits = {9, 5, 1,  // 0, then 1
                                     9, 5, 1,  //
                                     9, 1, 5,  // 0, then 2
                                     9, 5, 1,  // expert 0 already has three first choices
                                     5, 9, 1,  // 1, then 0, which is full
                                     5, 9, 1};
  const auto routing = Route({.experts = 3, .choices = 2, .capacity_factor = 0.75}, logits);
  ASSERT_TRUE(routing.ok()) << routing.status();
  // Expert 1 gets both first choices, of tokens 4 and 5, and one second choice, of token 0.
  EXPECT_THAT(routing->rows,
              ElementsAre(RoutedRow{0, 0}, RoutedRow{1, 0}, RoutedRow{2, 0}, RoutedRow{0, 1},
                          RoutedRow{4, 0}, RoutedRow{5, 0}, RoutedRow{2, 1}));
  EXPECT_EQ(routing->dropped(), 5u);
  const auto roomy = Route({.experts = 3, .choices = 2, .capacity_factor = 2}, logits);
  EXPECT_EQ(roomy->dropped(), 0u);
}

// Computes the definition in training/nn/parallel/experts/routing.h.
double BalanceLoss(const Routing& routing, const TokenGroup& group) {
  const size_t experts = routing.options.experts;
  const size_t choices = routing.options.choices;
  const auto tokens = static_cast<double>(group.count);
  double sum = 0;
  for (size_t e = 0; e < experts; ++e) {
    double chosen = 0, probability = 0;
    for (size_t token = group.first; token < group.first + group.count; ++token) {
      for (size_t i = 0; i < choices; ++i) chosen += routing.chosen[token * choices + i] == e;
      probability += static_cast<double>(routing.probabilities[token * experts + e]);
    }
    sum += chosen / tokens * probability / tokens;
  }
  return sum * static_cast<double>(experts);
}

TEST(BalanceLoss, OfAnEvenLoad_IsTheNumberOfChoices_AndOfAllOnOneTheMost) {
  // The tokens prefer different pairs of experts.
  const std::vector<float> even = {40, 40, 0, 0, 0, 0, 40, 40};
  const auto balanced = Route({.experts = 4, .choices = 2}, even);
  EXPECT_NEAR(BalanceLoss(*balanced, {0, 2}), 2, 1e-6);
  const std::vector<float> same = {40, 40, 0, 0, 40, 40, 0, 0};
  const auto skewed = Route({.experts = 4, .choices = 2}, same);
  EXPECT_NEAR(BalanceLoss(*skewed, {0, 2}), 4, 1e-6);
  // A group's loss does not depend on other groups.
  EXPECT_NEAR(BalanceLoss(*balanced, {0, 1}), 4, 1e-6);
}

// The function whose gradient is tested, in float64: given factors of the weights of kept choices,
// plus the balance losses with fixed loads.
struct Objective {
  RoutingOptions options;
  Routing held;  // the choices at the tested point
  std::vector<double> factors;
  BalanceTerm balance;

  double Of(const std::vector<double>& logits) const {
    const size_t n = options.experts, k = options.choices;
    double sum = 0;
    std::vector<std::vector<double>> p(held.tokens, std::vector<double>(n));
    for (size_t t = 0; t < held.tokens; ++t) {
      double all = 0, chosen = 0;
      for (size_t e = 0; e < n; ++e) all += std::exp(logits[t * n + e]);
      for (size_t e = 0; e < n; ++e) p[t][e] = std::exp(logits[t * n + e]) / all;
      for (size_t i = 0; i < k; ++i) chosen += p[t][held.chosen[t * k + i]];
      for (const RoutedRow& row : held.rows) {
        if (row.token != t) continue;
        const double share = p[t][held.chosen[t * k + row.choice]];
        sum += factors[t * k + row.choice] *
               (options.mixing == Mixing::kOverChosen ? share / chosen : share);
      }
    }
    for (size_t first = 0; first < held.tokens; first += balance.group) {
      const auto each = static_cast<double>(balance.group);
      for (size_t e = 0; e < n; ++e) {
        double load = 0, mean = 0;
        for (size_t t = first; t < first + balance.group; ++t) {
          for (size_t i = 0; i < k; ++i) load += held.chosen[t * k + i] == e ? 1 / each : 0;
          mean += p[t][e] / each;
        }
        sum += balance.scale * static_cast<double>(n) * load * mean;
      }
    }
    return sum;
  }
};

TEST(RouteBackward, MatchesFiniteDifferencesInFloat64) {
  for (const Mixing mixing : {Mixing::kOverChosen, Mixing::kOverAll}) {
    for (const size_t choices : {size_t{1}, size_t{2}, size_t{3}}) {
      for (const double capacity : {0.0, 0.8}) {
        const RoutingOptions options = {
            .experts = 5, .choices = choices, .mixing = mixing, .capacity_factor = capacity};
        const std::vector<float> logits = RandomLogits(6 * 5, 3);
        Objective objective = {.options = options,
                               .held = *Route(options, logits),
                               .factors = {},
                               .balance = {.scale = 0.3, .group = 3}};
        EXPECT_EQ(objective.held.dropped() > 0, capacity > 0);
        const std::vector<float> factors = RandomLogits(6 * choices, 4);
        objective.factors.assign(factors.begin(), factors.end());
        std::vector<float> gradient(logits.size());
        ASSERT_EQ(RouteBackward(objective.held, factors, objective.balance, gradient),
                  absl::OkStatus());
        std::vector<double> at(logits.begin(), logits.end());
        for (size_t i = 0; i < at.size(); ++i) {
          constexpr double kStep = 1e-5;
          const double centre = at[i];
          at[i] = centre + kStep;
          const double up = objective.Of(at);
          at[i] = centre - kStep;
          const double down = objective.Of(at);
          at[i] = centre;
          EXPECT_NEAR(gradient[i], (up - down) / (2 * kStep), 1e-5) << i;
        }
      }
    }
  }
}

TEST(BalanceLoss, IsWhatTheGradientIsOf) {
  const RoutingOptions options = {.experts = 4, .choices = 2};
  const std::vector<float> logits = RandomLogits(6 * 4, 5);
  const Routing routing = *Route(options, logits);
  const Objective objective = {.options = options,
                               .held = routing,
                               .factors = std::vector<double>(12),
                               .balance = {.scale = 1, .group = 3}};
  EXPECT_NEAR(BalanceLoss(routing, {0, 3}) + BalanceLoss(routing, {3, 3}),
              objective.Of({logits.begin(), logits.end()}), 1e-6);
}

TEST(Route, WhatCannotBeRouted_IsRefused) {
  const std::vector<float> logits(8);
  EXPECT_THAT(std::string(Route({.experts = 4, .choices = 5}, logits).status().message()),
              HasSubstr("5 experts for each token are not from 1 to the 4"));
  EXPECT_FALSE(Route({.experts = 4, .choices = 0}, logits).ok());
  EXPECT_THAT(std::string(Route({.experts = 3, .choices = 1}, logits).status().message()),
              HasSubstr("8 logits are not those of whole tokens for 3 experts"));
  EXPECT_THAT(
      std::string(
          Route({.experts = 4, .choices = 1, .capacity_factor = -1}, logits).status().message()),
      HasSubstr("a capacity factor of -1"));
  const Routing routing = *Route({.experts = 4, .choices = 1}, logits);
  std::vector<float> dw(2), dz(8), wrong(7);
  EXPECT_FALSE(RouteBackward(routing, dw, {}, wrong).ok());
  EXPECT_FALSE(RouteBackward(routing, wrong, {}, dz).ok());
  EXPECT_THAT(std::string(RouteBackward(routing, dw, {.scale = 1, .group = 3}, dz).message()),
              HasSubstr("2 tokens cannot be balanced in groups of 3"));
}

}  // namespace
}  // namespace geminid::collectives
