#include "training/nn/parallel/sequence/ring_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>

#include "tests/collectives/hierarchical/hierarchical_world.h"
#include "tests/collectives/world.h"
#include "training/nn/parallel/host_layer_math.h"

namespace geminid::collectives {
namespace {

using Values = std::vector<float>;
using Exact = std::vector<double>;

Values Random(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Values values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The inputs of the whole sequence.
struct Inputs {
  Values q, k, v, dout;
};

Inputs RandomInputs(const RingShape& shape) {
  const size_t rows = shape.batch * shape.sequence * shape.head_dim;
  return {Random(rows * shape.heads, 1), Random(rows * shape.kv_heads, 2),
          Random(rows * shape.kv_heads, 3), Random(rows * shape.heads, 4)};
}

// Attention by its definition, one query at a time, in fp64.
struct Dense {
  Exact out, lse, dq, dk, dv;
};

class DenseAttention {
 public:
  DenseAttention(const RingShape& shape, const Inputs& in) : shape_(shape), in_(in) {
    result_.out.resize(in.q.size());
    result_.lse.resize(in.q.size() / shape.head_dim);
    result_.dq.resize(in.q.size());
    result_.dk.resize(in.k.size());
    result_.dv.resize(in.k.size());
    for (size_t entry = 0; entry < shape.batch; ++entry) {
      for (size_t head = 0; head < shape.heads; ++head) {
        for (size_t query = 0; query < shape.sequence; ++query) Attend(entry, head, query);
      }
    }
  }
  const Dense& result() const { return result_; }

 private:
  size_t At(size_t entry, size_t token, size_t heads, size_t head) const {
    return ((entry * shape_.sequence + token) * heads + head) * shape_.head_dim;
  }
  double Dot(const Values& a, size_t i, const Values& b, size_t j) const {
    double sum = 0;
    for (size_t d = 0; d < shape_.head_dim; ++d) {
      sum += static_cast<double>(a[i + d]) * static_cast<double>(b[j + d]);
    }
    return sum;
  }
  void Attend(size_t entry, size_t head, size_t query) {
    const double scale = static_cast<double>(shape_.scale);
    const size_t kv_head = head / (shape_.heads / shape_.kv_heads);
    const size_t at = At(entry, query, shape_.heads, head);
    const auto key_at = [&](size_t key) { return At(entry, key, shape_.kv_heads, kv_head); };
    Exact p(query + 1);
    double sum = 0;
    for (size_t key = 0; key <= query; ++key) {
      p[key] = std::exp(scale * Dot(in_.q, at, in_.k, key_at(key)));
      sum += p[key];
    }
    result_.lse[(entry * shape_.heads + head) * shape_.sequence + query] = std::log(sum);
    double delta = 0;
    for (size_t key = 0; key <= query; ++key) {
      p[key] /= sum;
      for (size_t d = 0; d < shape_.head_dim; ++d) {
        result_.out[at + d] += p[key] * static_cast<double>(in_.v[key_at(key) + d]);
      }
    }
    for (size_t d = 0; d < shape_.head_dim; ++d) {
      delta += result_.out[at + d] * static_cast<double>(in_.dout[at + d]);
    }
    for (size_t key = 0; key <= query; ++key) {
      const size_t from = key_at(key);
      const double ds = scale * p[key] * (Dot(in_.dout, at, in_.v, from) - delta);
      for (size_t d = 0; d < shape_.head_dim; ++d) {
        result_.dq[at + d] += ds * static_cast<double>(in_.k[from + d]);
        result_.dk[from + d] += ds * static_cast<double>(in_.q[at + d]);
        result_.dv[from + d] += p[key] * static_cast<double>(in_.dout[at + d]);
      }
    }
  }

  const RingShape& shape_;
  const Inputs& in_;
  Dense result_;
};

// A rank's part of a tensor [batch, sequence, width], or with `outer` heads before the sequence.
template <class T>
std::vector<T> PartOf(const std::vector<T>& whole, size_t outer, const Zigzag& zigzag, size_t rank,
                      size_t width) {
  std::vector<T> part;
  for (size_t entry = 0; entry < outer; ++entry) {
    for (size_t token = 0; token < zigzag.tokens(); ++token) {
      const size_t row = entry * zigzag.sequence + zigzag.PlaceOf(rank, token);
      for (size_t i = 0; i < width; ++i) part.push_back(whole[row * width + i]);
    }
  }
  return part;
}

// The log-sum-exps [batch, heads, tokens] of a rank in the order of the ring: [batch, 2 chunks,
// heads, tokens of a chunk].
Exact InChunks(const Exact& lse, const RingShape& shape, size_t chunk) {
  Exact chunks;
  for (size_t entry = 0; entry < shape.batch; ++entry) {
    for (const size_t first : {size_t{0}, chunk}) {
      for (size_t head = 0; head < shape.heads; ++head) {
        const size_t row = (entry * shape.heads + head) * 2 * chunk + first;
        for (size_t token = 0; token < chunk; ++token) chunks.push_back(lse[row + token]);
      }
    }
  }
  return chunks;
}

struct Results {
  Values out, lse, dq, dk, dv;
  friend bool operator==(const Results&, const Results&) = default;
};

std::unique_ptr<AsyncCommunicator> Queue(Communicator& rank) {
  auto queue = AsyncCommunicator::Start(rank.Duplicate("ring").value());
  EXPECT_TRUE(queue.ok()) << queue.status();
  return *std::move(queue);
}

Results RunOn(AsyncCommunicator& rank, const RingShape& shape, const Inputs& in) {
  HostRingRanks ranks(rank);
  auto ring = RingAttention::Make(shape, ranks);
  EXPECT_TRUE(ring.ok()) << ring.status();
  const Zigzag zigzag = {.sequence = shape.sequence,
                         .ranks = static_cast<size_t>(rank.WorldSize())};
  const auto own = [&](const Values& whole, size_t heads) {
    return PartOf(whole, shape.batch, zigzag, static_cast<size_t>(rank.Rank()),
                  heads * shape.head_dim);
  };
  const Values q = own(in.q, shape.heads), k = own(in.k, shape.kv_heads),
               v = own(in.v, shape.kv_heads), dout = own(in.dout, shape.heads);
  Results results;
  // The old contents of results do not matter.
  results.out.assign(q.size(), 7.0f);
  results.lse.assign(q.size() / shape.head_dim, 7.0f);
  results.dq.assign(q.size(), 7.0f);
  results.dk.assign(k.size(), 7.0f);
  results.dv.assign(k.size(), 7.0f);
  const auto math = MakeHostLayerMath(nullptr, HeapMemory());
  const LayerPlace place = {*math, HeapMemory()};
  EXPECT_EQ(ring->Forward(place, q, k, v, results.out, results.lse), absl::OkStatus());
  EXPECT_EQ(ring->Backward(place, {q, k, v, results.out, results.lse}, dout, results.dq, results.dk,
                           results.dv),
            absl::OkStatus());
  return results;
}

// `units` are in the last place of fp32 at the largest element.
void ExpectClose(const Values& found, const Exact& expected, double units, const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  double largest = 0, error = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, std::abs(static_cast<double>(found[i]) - expected[i]));
  }
  EXPECT_LE(error, units * 0x1p-23 * largest) << what << ": " << error / largest / 0x1p-23;
}

constexpr RingShape kShapes[] = {
    {.batch = 2, .sequence = 48, .heads = 3, .kv_heads = 3, .head_dim = 5, .scale = 0.5f},
    {.batch = 1, .sequence = 24, .heads = 4, .kv_heads = 1, .head_dim = 16, .scale = 0.25f},
    // Chunks have more queries than a tile, and not a whole number of tiles.
    {.batch = 1, .sequence = 600, .heads = 2, .kv_heads = 1, .head_dim = 8, .scale = 0.35f},
};

TEST(RingAttention, AnyNumberOfRanks_GivesDenseAttentionToRounding) {
  for (const RingShape& shape : kShapes) {
    const Inputs in = RandomInputs(shape);
    const Dense dense = DenseAttention(shape, in).result();
    for (const int ranks : {1, 2, 3, 4}) {
      Communicators world = LocalBackend().connect(ranks, absl::Seconds(60));
      ForEachRank(world, [&](Communicator& rank) {
        const Results found = RunOn(*Queue(rank), shape, in);
        const Zigzag zigzag = {.sequence = shape.sequence, .ranks = static_cast<size_t>(ranks)};
        const auto own = [&](const Exact& whole, size_t outer, size_t width) {
          return PartOf(whole, outer, zigzag, static_cast<size_t>(rank.Rank()), width);
        };
        const size_t queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
        ExpectClose(found.out, own(dense.out, shape.batch, queries), 8, "out");
        ExpectClose(found.lse,
                    InChunks(own(dense.lse, shape.batch * shape.heads, 1), shape, zigzag.chunk()),
                    8, "lse");
        ExpectClose(found.dq, own(dense.dq, shape.batch, queries), 32, "dq");
        ExpectClose(found.dk, own(dense.dk, shape.batch, keys), 32, "dk");
        ExpectClose(found.dv, own(dense.dv, shape.batch, keys), 32, "dv");
      });
    }
  }
}

// Exponentials of scores of some hundreds overflow fp32; those of their differences do not.
TEST(RingAttention, LargeScores_DoNotOverflow) {
  const RingShape shape = {
      .batch = 1, .sequence = 32, .heads = 1, .kv_heads = 1, .head_dim = 4, .scale = 30.0f};
  Inputs in = RandomInputs(shape);
  Communicators world = LocalBackend().connect(4, absl::Seconds(60));
  ForEachRank(world, [&](Communicator& rank) {
    const Results found = RunOn(*Queue(rank), shape, in);
    for (const Values* values : {&found.out, &found.lse, &found.dq, &found.dk, &found.dv}) {
      for (const float value : *values) ASSERT_TRUE(std::isfinite(value));
    }
  });
}

TEST(RingAttention, EveryBackendAndEveryRun_GiveTheSameBits) {
  const RingShape& shape = kShapes[0];
  const Inputs in = RandomInputs(shape);
  std::vector<Results> expected(4);
  for (const Backend& backend : {LocalBackend(), LocalBackend(), ShmBackend(), HostsBackend()}) {
    const bool first = expected[0].out.empty();
    Communicators world = backend.connect(4, absl::Seconds(60));
    ForEachRank(world, [&](Communicator& rank) {
      Results found = RunOn(*Queue(rank), shape, in);
      Results& of_rank = expected[static_cast<size_t>(rank.Rank())];
      if (first) {
        of_rank = std::move(found);
      } else {
        EXPECT_TRUE(found == of_rank) << backend.name;
      }
    });
  }
}

TEST(RingAttention, BytesAndPartners_AreTheClosedForms) {
  for (const RingShape& shape : kShapes) {
    const Inputs in = RandomInputs(shape);
    for (const int ranks : {1, 2, 3, 4}) {
      Communicators world = LocalBackend().connect(ranks, absl::Seconds(60));
      ForEachRank(world, [&](Communicator& rank) {
        const auto queue = Queue(rank);
        (void)RunOn(*queue, shape, in);
        const auto p = static_cast<uint64_t>(ranks);
        const uint64_t n = shape.batch * shape.sequence / p * shape.kv_heads * shape.head_dim;
        const uint64_t forward = 2 * (p - 1) * n, backward = 2 * (p - 1) * n + 2 * p * n;
        const uint64_t bytes = p == 1 ? 0 : (forward + backward) * sizeof(float);
        std::map<int, PeerTraffic> expected;
        expected[(rank.Rank() + 1) % ranks].bytes_sent += bytes;
        expected[(rank.Rank() + ranks - 1) % ranks].bytes_received += bytes;
        const CommunicatorStats stats = queue->Stats();
        for (int r = 0; r < ranks; ++r) {
          EXPECT_EQ(stats.peers[static_cast<size_t>(r)], expected[r]) << r << " of " << ranks;
        }
      });
    }
  }
}

TEST(Zigzag, EveryTokenHasOneRank_AndEveryRankTheSameWork) {
  const Zigzag zigzag = {.sequence = 48, .ranks = 4};
  std::vector<int> owners(48);
  std::vector<size_t> pairs(4);  // pairs of a query and a key that it sees
  for (size_t rank = 0; rank < 4; ++rank) {
    size_t before = 0;
    for (size_t token = 0; token < zigzag.tokens(); ++token) {
      const size_t place = zigzag.PlaceOf(rank, token);
      EXPECT_TRUE(token == 0 || place > before);
      before = place;
      ++owners[place];
      pairs[rank] += place + 1;
    }
  }
  EXPECT_EQ(owners, std::vector<int>(48, 1));
  EXPECT_EQ(pairs, std::vector<size_t>(4, 48 * 49 / 2 / 4));
}

TEST(RingAttention, WhatCannotBeCut_IsRefused) {
  Communicators world = LocalBackend().connect(2, absl::Seconds(60));
  ForEachRank(world, [&](Communicator& rank) {
    const auto queue = Queue(rank);
    HostRingRanks ranks(*queue);
    const auto math = MakeHostLayerMath(nullptr, HeapMemory());
    const LayerPlace place = {*math, HeapMemory()};
    RingShape shape = {
        .batch = 1, .sequence = 6, .heads = 2, .kv_heads = 1, .head_dim = 2, .scale = 1};
    EXPECT_THAT(std::string(RingAttention::Make(shape, ranks).status().message()),
                testing::HasSubstr("6 tokens cannot be divided into 4 chunks"));
    shape.sequence = 8;
    shape.kv_heads = 3;
    EXPECT_EQ(RingAttention::Make(shape, ranks).status().code(),
              absl::StatusCode::kInvalidArgument);
    shape.kv_heads = 1;
    auto ring = RingAttention::Make(shape, ranks);
    ASSERT_TRUE(ring.ok()) << ring.status();
    Values q(16), k(8), v(8), out(16), lse(8), shorter(7);
    EXPECT_THAT(std::string(ring->Forward(place, q, shorter, v, out, lse).message()),
                testing::HasSubstr("k has 7 elements; this rank's part has 8"));
    EXPECT_EQ(ring->Forward(place, q, k, v, out, shorter).code(),
              absl::StatusCode::kInvalidArgument);
    Values dq(16), dk(8), dv(8), dout(16);
    EXPECT_EQ(ring->Backward(place, {q, k, v, out, lse}, dout, dq, shorter, dv).code(),
              absl::StatusCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace geminid::collectives
