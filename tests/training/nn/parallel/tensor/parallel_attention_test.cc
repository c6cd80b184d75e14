#include "training/nn/parallel/tensor/parallel_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/training/nn/parallel/tensor/blocks.h"

namespace geminid::collectives {
namespace {

// Sizes that every grid's sides and depths divide.
AttentionOptions Options() {
  return {.sequences = 36,
          .sequence_length = 5,
          .hidden = 36,
          .heads = 24,
          .kv_heads = 12,
          .head_dim = 6,
          .bias = true};
}

size_t Queries(const AttentionOptions& options) { return options.heads * options.head_dim; }
size_t Keys(const AttentionOptions& options) { return options.kv_heads * options.head_dim; }

template <class Draw>
BlockGiven DrawAll(const AttentionOptions& options, Draw draw) {
  const size_t outputs = Queries(options) + 2 * Keys(options);
  return {.x = Drawn(options.tokens(), options.hidden, draw),
          .w1 = Drawn(outputs, options.hidden, draw),
          .b1 = Drawn(1, outputs, draw),
          .w2 = Drawn(options.hidden, Queries(options), draw),
          .b2 = Drawn(1, options.hidden, draw),
          .dy = Drawn(options.tokens(), options.hidden, draw)};
}

// Rotates the queries and keys of every token by `sign` times the angles of its position.
void PassDirection(const AttentionOptions& options, double sign, Wide& qkv) {
  if (options.rotary_theta == 0) return;
  const size_t half = options.head_dim / 2;
  for (size_t t = 0; t < qkv.rows; ++t) {
    for (size_t head = 0; head < options.heads + options.kv_heads; ++head) {
      for (size_t i = 0; i < half; ++i) {
        const auto position = static_cast<double>(t % options.sequence_length);
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(2 * half);
        const double angle = sign * position * std::pow(options.rotary_theta, exponent);
        double& a = qkv.at(t, head * 2 * half + i);
        double& b = qkv.at(t, head * 2 * half + half + i);
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = turned;
      }
    }
  }
}

// One query's attention weights for the keys up to it.
std::vector<double> Shares(const AttentionOptions& options, const Wide& qkv, size_t query,
                           size_t head) {
  const size_t width = options.head_dim,
               first = query / options.sequence_length * options.sequence_length;
  const size_t key_column = Queries(options) + head / (options.heads / options.kv_heads) * width;
  std::vector<double> shares;
  for (size_t key = first; key <= query; ++key) {
    double score = 0;
    for (size_t i = 0; i < width; ++i) {
      score += qkv.at(query, head * width + i) * qkv.at(key, key_column + i);
    }
    shares.push_back(score / std::sqrt(static_cast<double>(width)));
  }
  const double max = *std::max_element(shares.begin(), shares.end());
  for (double& share : shares) share = std::exp(share - max);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

Wide Attend(const AttentionOptions& options, const Wide& qkv) {
  Wide out(qkv.rows, Queries(options));
  const size_t width = options.head_dim, group = options.heads / options.kv_heads;
  for (size_t query = 0; query < qkv.rows; ++query) {
    for (size_t head = 0; head < options.heads; ++head) {
      const std::vector<double> shares = Shares(options, qkv, query, head);
      const size_t values = Queries(options) + Keys(options) + head / group * width;
      for (size_t k = 0; k < shares.size(); ++k) {
        const size_t key = query + 1 - shares.size() + k;
        for (size_t i = 0; i < width; ++i) {
          out.at(query, head * width + i) += shares[k] * qkv.at(key, values + i);
        }
      }
    }
  }
  return out;
}

Wide AttendBackward(const AttentionOptions& options, const Wide& qkv, const Wide& dout) {
  Wide dqkv(qkv.rows, qkv.columns);
  const size_t width = options.head_dim, group = options.heads / options.kv_heads;
  for (size_t query = 0; query < qkv.rows; ++query) {
    for (size_t head = 0; head < options.heads; ++head) {
      const std::vector<double> shares = Shares(options, qkv, query, head);
      const size_t queries = head * width, keys = Queries(options) + head / group * width;
      const size_t values = keys + Keys(options), first = query + 1 - shares.size();
      std::vector<double> dshares(shares.size());
      double mean = 0;
      for (size_t k = 0; k < shares.size(); ++k) {
        for (size_t i = 0; i < width; ++i) {
          dshares[k] += dout.at(query, queries + i) * qkv.at(first + k, values + i);
          dqkv.at(first + k, values + i) += shares[k] * dout.at(query, queries + i);
        }
        mean += shares[k] * dshares[k];
      }
      for (size_t k = 0; k < shares.size(); ++k) {
        const double dscore =
            shares[k] * (dshares[k] - mean) / std::sqrt(static_cast<double>(width));
        for (size_t i = 0; i < width; ++i) {
          dqkv.at(query, queries + i) += dscore * qkv.at(first + k, keys + i);
          dqkv.at(first + k, keys + i) += dscore * qkv.at(query, queries + i);
        }
      }
    }
  }
  return dqkv;
}

// The whole block in float64.
BlockResults Solve(const AttentionOptions& options, const BlockGiven& given) {
  const Wide x(given.x), w1(given.w1), w2(given.w2), dy(given.dy);
  Wide qkv = LinearForward(x, w1, Wide(given.b1));
  PassDirection(options, 1, qkv);
  const Wide attended = Attend(options, qkv);
  Wide dqkv = AttendBackward(options, qkv, LinearBackwardInput(dy, w2));
  PassDirection(options, -1, dqkv);
  return {.y = Rounded(LinearForward(attended, w2, Wide(given.b2))),
          .dx = Rounded(LinearBackwardInput(dqkv, w1)),
          .dw1 = Rounded(LinearBackwardWeight(dqkv, x)),
          .db1 = Rounded(LinearBackwardBias(dqkv)),
          .dw2 = Rounded(LinearBackwardWeight(dy, attended)),
          .db2 = Rounded(LinearBackwardBias(dy))};
}

class ParallelAttentionOf : public testing::TestWithParam<GridCase> {};

// Every head finds the token with the largest or the smallest code among those before. Scores are
// so far apart that this token's weight is 1, so every sum is exact. The gradients of queries and
// keys are then 0; the test with random numbers covers them.
TEST_P(ParallelAttentionOf, WholeNumbers_AreTheDenseBlockBitForBit) {
  const AttentionOptions options = Options();
  std::mt19937 random(7);
  BlockGiven given = DrawAll(options, WholeNumbers(random, 2));
  std::vector<float> codes(options.sequence_length);
  std::iota(codes.begin(), codes.end(), 1.0F);
  for (size_t t = 0; t < options.tokens(); ++t) {
    if (t % codes.size() == 0) std::shuffle(codes.begin(), codes.end(), random);
    given.x.at(t, 0) = codes[t % codes.size()];
  }
  std::fill_n(given.w1.elements.begin(), (Queries(options) + Keys(options)) * options.hidden, 0.0F);
  std::fill_n(given.b1.elements.begin(), Queries(options) + Keys(options), 0.0F);
  for (size_t head = 0; head < options.heads; ++head) {
    given.b1.at(0, head * options.head_dim) = head % 2 == 0 ? 512.0F : -512.0F;
  }
  for (size_t head = 0; head < options.kv_heads; ++head) {
    given.w1.at(Queries(options) + head * options.head_dim, 0) = 1;
  }
  const BlockResults want = Solve(options, given);
  for (const BlockOutcome& rank : RunBlock<ParallelAttention<float>>(GetParam(), options, given)) {
    ExpectEqual(want, rank);
  }
}

TEST_P(ParallelAttentionOf, RandomNumbers_AreTheDenseBlockToRounding) {
  for (const double theta : {0.0, 10000.0}) {
    AttentionOptions options = Options();
    options.rotary_theta = theta;
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    BlockGiven given = DrawAll(options, [&] { return normal(random); });
    for (float& weight : given.w1.elements) weight /= 6;  // so that weights differ and none is 1
    const BlockResults want = Solve(options, given);
    for (const BlockOutcome& rank :
         RunBlock<ParallelAttention<float>>(GetParam(), options, given)) {
      ExpectClose(want, rank);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, ParallelAttentionOf, testing::ValuesIn(AllGrids()),
                         [](const auto& parameter) { return parameter.param.name(); });

class ParallelAttentionTraffic : public testing::TestWithParam<GridCase> {};

// The tensors are large enough that all-reduces are sliced, which the formulas count.
TEST_P(ParallelAttentionTraffic, BytesPartnersAndWhatIsKept_AreTheClosedForms) {
  AttentionOptions options = Options();
  options.sequence_length = 16;
  options.bias = false;
  std::mt19937 random(7);
  const BlockGiven given = DrawAll(options, WholeNumbers(random, 1));
  const size_t tokens = options.tokens(), outputs = Queries(options) + 2 * Keys(options);
  for (const BlockOutcome& rank : RunBlock<ParallelAttention<float>>(GetParam(), options, given)) {
    ExpectTraffic(GetParam(), {tokens, options.hidden, outputs},
                  {tokens, Queries(options), options.hidden}, rank);
    EXPECT_EQ(rank.kept * static_cast<size_t>(GetParam().ranks),
              tokens * (outputs + Queries(options) + options.heads));
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, ParallelAttentionTraffic, testing::ValuesIn(TrafficGrids()),
                         [](const auto& parameter) { return parameter.param.name(); });

TEST(ParallelAttention, HeadsAndSequencesThatWouldBeCut_AreRefused) {
  OnGrid({TensorMode::k2D, 4}, [](TensorGroups& groups, LinearScratch& scratch) {
    const auto refusal = [&](const auto& change) {
      AttentionOptions options = Options();
      change(options);
      return ParallelAttention<float>::Make(groups, options, scratch).status();
    };
    EXPECT_EQ(
        refusal([](auto& o) { o.kv_heads = 3; }).message(),
        "3 heads cannot be sharded for 2d tensor parallelism over 4 ranks: they must be divisible "
        "by 2");
    EXPECT_EQ(refusal([](auto& o) { o.sequences = 3; }).message(),
              "3 sequences cannot be sharded for 2d tensor parallelism over 4 ranks: they must be "
              "divisible by 2");
    EXPECT_EQ(refusal([](auto& o) { o.kv_heads = 5; }).message(),
              "24 heads of queries and 5 of keys: the latter must divide the former");
    EXPECT_EQ(refusal([](auto& o) { o.head_dim = 512; }).message(),
              "heads of 512 features: 1 to 256 are supported");
    EXPECT_EQ(refusal([](auto& o) { o.rotary_theta = -1; }).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(refusal([](auto& o) { o.sequence_length = 0; }).code(),
              absl::StatusCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace geminid::collectives
