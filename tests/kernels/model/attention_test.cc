#include "kernels/model/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "kernels/runtime/parallel/tasks.h"
#include "tests/kernels/model/model_kernels.h"

namespace geminid::kernels {
namespace {

// The reference in float64, with one score matrix per head and dense tensors [batch * sequence,
// heads, head_dim].
struct Reference {
  AttentionShape s;

  size_t At(size_t b, size_t t, size_t h, size_t heads, size_t i) const {
    return ((b * s.sequence + t) * heads + h) * s.head_dim + i;
  }
  size_t Kv(size_t h) const { return h / (s.heads / s.kv_heads); }
  bool Sees(size_t t, size_t j) const { return s.window == 0 || t - j < s.window; }
  size_t Keys(size_t t) const { return s.causal ? t + 1 : s.sequence; }

  // Row t of P, and its log-sum-exp.
  Doubles Row(const Doubles& q, const Doubles& k, size_t b, size_t h, size_t t, double* lse) const {
    Doubles p(Keys(t));
    double max = -INFINITY;
    for (size_t j = 0; j < Keys(t); ++j) {
      if (!Sees(t, j)) {
        p[j] = -INFINITY;
        continue;
      }
      for (size_t i = 0; i < s.head_dim; ++i) {
        p[j] += static_cast<double>(s.scale) * q[At(b, t, h, s.heads, i)] *
                k[At(b, j, Kv(h), s.kv_heads, i)];
      }
      max = std::max(max, p[j]);
    }
    double sum = 0;
    for (double& value : p) sum += value = std::exp(value - max);
    for (double& value : p) value /= sum;
    *lse = max + std::log(sum);
    return p;
  }

  template <typename Body>
  void ForEachRow(Body body) const {
    for (size_t b = 0; b < s.batch; ++b) {
      for (size_t h = 0; h < s.heads; ++h) {
        for (size_t t = 0; t < s.sequence; ++t) body(b, h, t);
      }
    }
  }

  Doubles Forward(const Doubles& q, const Doubles& k, const Doubles& v, Doubles* lse) const {
    Doubles out(q.size());
    lse->assign(s.batch * s.heads * s.sequence, 0.0);
    ForEachRow([&](size_t b, size_t h, size_t t) {
      const Doubles p = Row(q, k, b, h, t, &(*lse)[(b * s.heads + h) * s.sequence + t]);
      for (size_t j = 0; j < Keys(t); ++j) {
        for (size_t i = 0; i < s.head_dim; ++i) {
          out[At(b, t, h, s.heads, i)] += p[j] * v[At(b, j, Kv(h), s.kv_heads, i)];
        }
      }
    });
    return out;
  }

  struct Gradients {
    Doubles dq, dk, dv;
  };

  Gradients Backward(const Doubles& q, const Doubles& k, const Doubles& v, const Doubles& out,
                     const Doubles& dout) const {
    Gradients g = {Doubles(q.size()), Doubles(k.size()), Doubles(v.size())};
    ForEachRow([&](size_t b, size_t h, size_t t) {
      double lse = 0;
      const Doubles p = Row(q, k, b, h, t, &lse);
      double delta = 0;
      for (size_t i = 0; i < s.head_dim; ++i) {
        const size_t at = At(b, t, h, s.heads, i);
        delta += out[at] * dout[at];
      }
      for (size_t j = 0; j < Keys(t); ++j) {
        double dp = 0;
        for (size_t i = 0; i < s.head_dim; ++i) {
          dp += dout[At(b, t, h, s.heads, i)] * v[At(b, j, Kv(h), s.kv_heads, i)];
        }
        const double ds = p[j] * (dp - delta) * static_cast<double>(s.scale);
        for (size_t i = 0; i < s.head_dim; ++i) {
          const size_t at_q = At(b, t, h, s.heads, i);
          const size_t at_kv = At(b, j, Kv(h), s.kv_heads, i);
          g.dv[at_kv] += p[j] * dout[at_q];
          g.dq[at_q] += ds * k[at_kv];
          g.dk[at_kv] += ds * q[at_q];
        }
      }
    });
    return g;
  }
};

AttentionShape Shape(size_t batch, size_t sequence, size_t heads, size_t kv_heads,
                     size_t head_dim) {
  return {.batch = batch,
          .sequence = sequence,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))};
}

AttentionShape WithWindow(AttentionShape shape, size_t window) {
  shape.window = window;
  return shape;
}

AttentionShape OfWholeSequences(AttentionShape shape) {
  shape.causal = false;
  return shape;
}

// Runs both passes on dense tensors.
template <typename T>
struct AttentionRun {
  AttentionRun(const AttentionShape& with_shape, unsigned seed, double sigma = 1.0,
               size_t shift = 0)
      : shape(with_shape),
        q_width(shape.heads * shape.head_dim),
        kv_width(shape.kv_heads * shape.head_dim),
        random(seed),
        q(RandomTensor<T>(random, tokens() * q_width, sigma, 0.0, shift)),
        k(RandomTensor<T>(random, tokens() * kv_width, sigma, 0.0, shift)),
        v(RandomTensor<T>(random, tokens() * kv_width, sigma, 0.0, shift)),
        dout(RandomTensor<T>(random, tokens() * q_width, 1.0, 0.0, shift)),
        out(q.size(), shift),
        dq(q.size(), shift),
        dk(k.size(), shift),
        dv(k.size(), shift),
        lse(shape.batch * shape.heads * shape.sequence, shift) {}

  size_t tokens() const { return shape.batch * shape.sequence; }
  HeadsView<const T> View(const GuardedArray<T>& x) const {
    return {x.data(), x.size() / tokens()};
  }
  HeadsView<T> View(GuardedArray<T>& x) const { return {x.data(), x.size() / tokens()}; }

  void Forward(ThreadPool* pool = nullptr) {
    Workspace workspace(AttentionWorkspaceBytes(shape, ThreadsOf(pool)));
    ASSERT_EQ(AttentionForward<T>(shape, View(std::as_const(q)), View(std::as_const(k)),
                                  View(std::as_const(v)), View(out), lse.data(), workspace.data(),
                                  workspace.bytes(), pool),
              Status::kOk);
    EXPECT_TRUE(workspace.array.GuardsIntact());
  }

  void Backward(ThreadPool* pool = nullptr) {
    Workspace workspace(AttentionWorkspaceBytes(shape, ThreadsOf(pool)));
    const AttentionSaved<T> saved = {
        .q = View(std::as_const(q)),
        .k = View(std::as_const(k)),
        .v = View(std::as_const(v)),
        .out = View(std::as_const(out)),
        .dout = View(std::as_const(dout)),
        .lse = lse.data(),
    };
    ASSERT_EQ(AttentionBackward<T>(shape, saved, View(dq), View(dk), View(dv), workspace.data(),
                                   workspace.bytes(), pool),
              Status::kOk);
    EXPECT_TRUE(workspace.array.GuardsIntact());
  }

  AttentionShape shape;
  size_t q_width;
  size_t kv_width;
  std::mt19937 random;
  GuardedArray<T> q, k, v, dout, out, dq, dk, dv;
  GuardedArray<float> lse;
};

template <typename T>
void CheckThreads(const AttentionShape& shape) {
  AttentionRun<T> alone(shape, 31);
  alone.Forward();
  alone.Backward();
  for (const size_t threads : {2, 3, 8}) {
    std::unique_ptr<ThreadPool> pool;
    ASSERT_EQ(ThreadPool::Create({.threads = threads}, &pool), Status::kOk);
    AttentionRun<T> run(shape, 31);
    run.Forward(pool.get());
    run.Backward(pool.get());
    EXPECT_EQ(ToDoubles(run.out), ToDoubles(alone.out));
    EXPECT_EQ(ToDoubles(run.lse), ToDoubles(alone.lse));
    EXPECT_EQ(ToDoubles(run.dq), ToDoubles(alone.dq));
    EXPECT_EQ(ToDoubles(run.dk), ToDoubles(alone.dk));
    EXPECT_EQ(ToDoubles(run.dv), ToDoubles(alone.dv));
  }
}

template <typename T>
void CheckAgainstReference(const AttentionShape& shape, double sigma) {
  AttentionRun<T> run(shape, 31, sigma);
  run.Forward();
  const Reference reference = {shape};
  Doubles lse;
  const Doubles q = ToDoubles(run.q);
  const Doubles k = ToDoubles(run.k);
  const Doubles v = ToDoubles(run.v);
  const Doubles out = reference.Forward(q, k, v, &lse);
  // Scores of size s have a relative error of 2^-24 each, so P has about |s| 2^-23.
  const double error = 2e-6 * (1.0 + sigma * sigma);
  ExpectClose(run.out, out, error);
  ExpectClose(run.lse, lse, 1e-6);
  run.Backward();
  const auto want = reference.Backward(q, k, v, ToDoubles(run.out), ToDoubles(run.dout));
  ExpectClose(run.dq, want.dq, 3 * error);
  ExpectClose(run.dk, want.dk, 3 * error);
  ExpectClose(run.dv, want.dv, 3 * error);
}

template <typename T>
class Attention : public ::testing::Test {};
template <typename T>
void CheckLaterQueries(AttentionShape shape) {
  AttentionRun<T> whole(shape, 31);
  whole.Forward();
  for (const size_t first : {size_t{1}, size_t{3}, size_t{63}, size_t{64}, shape.sequence - 1}) {
    if (first >= shape.sequence) continue;
    shape.first_query = first;
    const size_t row = whole.q_width, queries = shape.queries();
    GuardedArray<T> out(queries * row, 0);
    GuardedArray<float> lse(shape.heads * queries, 0);
    Workspace workspace(AttentionWorkspaceBytes(shape));
    const HeadsView<const T> q = {whole.q.data() + first * row, row};
    ASSERT_EQ(AttentionForward<T>(shape, q, whole.View(std::as_const(whole.k)),
                                  whole.View(std::as_const(whole.v)), HeadsView<T>{out.data(), row},
                                  lse.data(), workspace.data(), workspace.bytes()),
              Status::kOk);
    EXPECT_TRUE(workspace.array.GuardsIntact() && out.GuardsIntact() && lse.GuardsIntact());
    EXPECT_TRUE(SameBits(out.data(), whole.out.data() + first * row, queries * row)) << first;
    for (size_t h = 0; h < shape.heads; ++h) {
      EXPECT_TRUE(SameBits(lse.data() + h * queries, whole.lse.data() + h * shape.sequence + first,
                           queries));
    }
  }
}

TEST(AttentionQueries, FromAnyTokenOn_HaveTheBitsOfTheWhole) {
  for (const size_t sequence : {2, 64, 65, 130}) {
    CheckLaterQueries<float>(Shape(1, sequence, 4, 2, 20));
    CheckLaterQueries<BFloat16>(Shape(1, sequence, 3, 3, 16));
  }
}

TEST(AttentionQueries, WithAWindow_HaveTheBitsOfTheWhole) {
  for (const size_t window : {size_t{1}, size_t{5}, size_t{64}, size_t{70}, size_t{200}}) {
    SCOPED_TRACE(window);
    CheckLaterQueries<float>(WithWindow(Shape(1, 130, 4, 2, 20), window));
    CheckLaterQueries<BFloat16>(WithWindow(Shape(1, 65, 3, 3, 16), window));
  }
}

// With a window of one token, the query's own, the output is the value itself.
TEST(AttentionWindow, OfOneToken_SeesTheQuerysOwnAlone) {
  AttentionRun<float> run(WithWindow(Shape(2, 70, 1, 1, 16), 1), 31);
  run.Forward();
  EXPECT_TRUE(SameBits(run.out.data(), run.v.data(), run.v.size()));
}

TEST(AttentionQueries, BeyondTheSequenceOrInTheBackwardPass_AreRefused) {
  AttentionRun<float> run(Shape(1, 4, 1, 1, 16), 31);
  run.shape.first_query = 4;
  Workspace workspace(AttentionWorkspaceBytes(Shape(1, 4, 1, 1, 16)));
  EXPECT_EQ(AttentionForward<float>(run.shape, run.View(std::as_const(run.q)),
                                    run.View(std::as_const(run.k)), run.View(std::as_const(run.v)),
                                    run.View(run.out), run.lse.data(), workspace.data(),
                                    workspace.bytes()),
            Status::kInvalidShape);
  run.shape.first_query = 1;
  EXPECT_EQ(AttentionBackward<float>(run.shape, {}, run.View(run.dq), run.View(run.dk),
                                     run.View(run.dv), workspace.data(), workspace.bytes()),
            Status::kInvalidShape);
}

TEST(AttentionOfWholeSequences, WithAWindowOrOfLaterQueries_IsRefused) {
  AttentionRun<float> run(OfWholeSequences(Shape(1, 4, 1, 1, 16)), 31);
  Workspace workspace(AttentionWorkspaceBytes(run.shape));
  const auto forward = [&](const AttentionShape& shape) {
    return AttentionForward<float>(shape, run.View(std::as_const(run.q)),
                                   run.View(std::as_const(run.k)), run.View(std::as_const(run.v)),
                                   run.View(run.out), run.lse.data(), workspace.data(),
                                   workspace.bytes());
  };
  EXPECT_EQ(forward(run.shape), Status::kOk);
  EXPECT_EQ(forward(WithWindow(run.shape, 2)), Status::kInvalidShape);
  AttentionShape later = run.shape;
  later.first_query = 1;
  EXPECT_EQ(forward(later), Status::kInvalidShape);
}

TEST(AttentionThreads, OfAnyNumber_GiveTheSameBits) {
  CheckThreads<float>(Shape(2, 70, 4, 2, 20));
  CheckThreads<BFloat16>(Shape(3, 33, 3, 3, 16));
}

TYPED_TEST_SUITE(Attention, ElementTypes);

TYPED_TEST(Attention, BothPasses_ManyShapes_MatchFloat64) {
  for (const AttentionShape& shape :
       {Shape(1, 1, 1, 1, 1), Shape(2, 5, 2, 2, 8), Shape(1, 63, 3, 1, 20), Shape(2, 64, 2, 1, 32),
        Shape(1, 65, 2, 2, 64), Shape(1, 200, 4, 2, 80), Shape(1, 130, 1, 1, 128),
        Shape(1, 70, 1, 1, 256)}) {
    SCOPED_TRACE(::testing::Message() << shape.sequence << " tokens, head_dim " << shape.head_dim);
    CheckAgainstReference<TypeParam>(shape, 1.0);
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(Attention, BothPasses_WithAWindow_MatchFloat64) {
  for (const size_t window : {2, 3, 63, 64, 65, 100, 127, 128, 129, 150, 199, 200, 1000}) {
    SCOPED_TRACE(::testing::Message() << "a window of " << window);
    CheckAgainstReference<TypeParam>(WithWindow(Shape(1, 200, 2, 1, 20), window), 1.0);
    if (this->HasFatalFailure()) return;
  }
  CheckAgainstReference<TypeParam>(WithWindow(Shape(2, 65, 4, 2, 16), 7), 6.0);
  ForEachTarget(
      [] { CheckAgainstReference<TypeParam>(WithWindow(Shape(1, 130, 2, 1, 24), 66), 1.0); });
}

TYPED_TEST(Attention, BothPasses_OfWholeSequences_MatchFloat64) {
  for (const AttentionShape& shape :
       {Shape(1, 1, 1, 1, 1), Shape(2, 5, 2, 2, 8), Shape(1, 63, 3, 1, 20), Shape(2, 64, 2, 1, 32),
        Shape(1, 65, 2, 2, 64), Shape(1, 200, 4, 2, 80), Shape(1, 128, 1, 1, 128)}) {
    SCOPED_TRACE(::testing::Message() << shape.sequence << " tokens, head_dim " << shape.head_dim);
    CheckAgainstReference<TypeParam>(OfWholeSequences(shape), 1.0);
    if (this->HasFatalFailure()) return;
  }
  CheckAgainstReference<TypeParam>(OfWholeSequences(Shape(1, 90, 1, 1, 64)), 6.0);
  ForEachTarget(
      [] { CheckAgainstReference<TypeParam>(OfWholeSequences(Shape(1, 100, 2, 1, 24)), 1.0); });
  CheckThreads<TypeParam>(OfWholeSequences(Shape(2, 70, 4, 2, 20)));
}

TYPED_TEST(Attention, BothPasses_EveryTarget_MatchFloat64) {
  ForEachTarget([] { CheckAgainstReference<TypeParam>(Shape(1, 100, 2, 1, 24), 1.0); });
}

TYPED_TEST(Attention, BothPasses_LargeScores_DoNotOverflow) {
  CheckAgainstReference<TypeParam>(Shape(1, 90, 1, 1, 64), 6.0);
}

TEST(Attention, ReferenceBackward_FiniteDifferences_Agree) {
  const AttentionShape shape = Shape(2, 6, 4, 2, 5);
  const AttentionRun<float> run(shape, 32);
  const Reference reference = {shape};
  const Doubles q = ToDoubles(run.q);
  const Doubles k = ToDoubles(run.k);
  const Doubles v = ToDoubles(run.v);
  const Doubles dout = ToDoubles(run.dout);
  Doubles lse;
  const Doubles out = reference.Forward(q, k, v, &lse);
  const auto want = reference.Backward(q, k, v, out, dout);
  const auto compare = [](const Doubles& numeric, const Doubles& analytic) {
    for (size_t i = 0; i < numeric.size(); ++i) EXPECT_NEAR(numeric[i], analytic[i], 1e-8);
  };
  compare(NumericGradient(
              [&](const Doubles& x) { return Dot(reference.Forward(x, k, v, &lse), dout); }, q),
          want.dq);
  compare(NumericGradient(
              [&](const Doubles& x) { return Dot(reference.Forward(q, x, v, &lse), dout); }, k),
          want.dk);
  compare(NumericGradient(
              [&](const Doubles& x) { return Dot(reference.Forward(q, k, x, &lse), dout); }, v),
          want.dv);
}

TYPED_TEST(Attention, FusedQkv_SameBitsAsSeparateTensors) {
  const AttentionShape shape = Shape(2, 70, 4, 2, 16);
  AttentionRun<TypeParam> run(shape, 33);
  run.Forward();
  run.Backward();
  const size_t stride = run.q_width + 2 * run.kv_width;
  GuardedArray<TypeParam> qkv(run.tokens() * stride, 0);
  for (size_t t = 0; t < run.tokens(); ++t) {
    std::copy_n(run.q.data() + t * run.q_width, run.q_width, qkv.data() + t * stride);
    std::copy_n(run.k.data() + t * run.kv_width, run.kv_width,
                qkv.data() + t * stride + run.q_width);
    std::copy_n(run.v.data() + t * run.kv_width, run.kv_width,
                qkv.data() + t * stride + run.q_width + run.kv_width);
  }
  GuardedArray<TypeParam> dqkv(qkv.size(), 0);
  const auto part = [&](auto* data, size_t offset) {
    return HeadsView<std::remove_reference_t<decltype(*data)>>{data + offset, stride};
  };
  const TypeParam* fused = qkv.data();
  const size_t k_offset = run.q_width;
  const size_t v_offset = run.q_width + run.kv_width;
  GuardedArray<TypeParam> out(run.out.size(), 0);
  Workspace workspace(AttentionWorkspaceBytes(shape));
  ASSERT_EQ(AttentionForward<TypeParam>(shape, part(fused, 0), part(fused, k_offset),
                                        part(fused, v_offset), run.View(out), run.lse.data(),
                                        workspace.data(), workspace.bytes()),
            Status::kOk);
  EXPECT_TRUE(SameBits(out.data(), run.out.data(), out.size()));
  const AttentionSaved<TypeParam> saved = {.q = part(fused, 0),
                                           .k = part(fused, k_offset),
                                           .v = part(fused, v_offset),
                                           .out = run.View(std::as_const(out)),
                                           .dout = run.View(std::as_const(run.dout)),
                                           .lse = run.lse.data()};
  ASSERT_EQ(AttentionBackward<TypeParam>(shape, saved, part(dqkv.data(), 0),
                                         part(dqkv.data(), k_offset), part(dqkv.data(), v_offset),
                                         workspace.data(), workspace.bytes()),
            Status::kOk);
  EXPECT_TRUE(dqkv.GuardsIntact());
  for (size_t t = 0; t < run.tokens(); ++t) {
    const TypeParam* row = dqkv.data() + t * stride;
    EXPECT_TRUE(SameBits(row, run.dq.data() + t * run.q_width, run.q_width));
    EXPECT_TRUE(SameBits(row + k_offset, run.dk.data() + t * run.kv_width, run.kv_width));
    EXPECT_TRUE(SameBits(row + v_offset, run.dv.data() + t * run.kv_width, run.kv_width));
  }
}

TYPED_TEST(Attention, AddressesRunsAndFmaTargets_SameBits) {
  const AttentionShape shape = Shape(1, 129, 2, 1, 40);
  AttentionRun<TypeParam> first(shape, 34);
  first.Forward();
  first.Backward();
  const auto compare = [&](size_t shift) {
    AttentionRun<TypeParam> other(shape, 34, 1.0, shift);
    other.Forward();
    other.Backward();
    EXPECT_TRUE(SameBits(first.out.data(), other.out.data(), other.out.size()));
    EXPECT_TRUE(SameBits(first.dq.data(), other.dq.data(), other.dq.size()));
    EXPECT_TRUE(SameBits(first.dk.data(), other.dk.data(), other.dk.size()));
    EXPECT_TRUE(SameBits(first.dv.data(), other.dv.data(), other.dv.size()));
  };
  for (const size_t shift : {0, 1, 33}) compare(shift);
  ForEachTarget([&] {
    if ((hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3 | HWY_NEON)) != 0) compare(0);
  });
}

TYPED_TEST(Attention, Causality_LaterTokens_DoNotChangeEarlierRows) {
  const AttentionShape shape = Shape(1, 100, 1, 1, 16);
  AttentionRun<TypeParam> first(shape, 35);
  AttentionRun<TypeParam> second(shape, 35);
  const size_t kept = 71 * second.kv_width;
  for (size_t i = kept; i < second.k.size(); ++i) {
    second.k[i] = ToElement<TypeParam>(9.0);
    second.v[i] = ToElement<TypeParam>(-9.0);
  }
  first.Forward();
  second.Forward();
  EXPECT_TRUE(SameBits(first.out.data(), second.out.data(), kept));
  EXPECT_FALSE(SameBits(first.out.data(), second.out.data(), first.out.size()));
}

TEST(Attention, Workspace_GrowsLinearlyWithSequence) {
  const auto bytes = [](size_t sequence) {
    return AttentionWorkspaceBytes(Shape(4, sequence, 16, 16, 64));
  };
  const size_t step = bytes(2048) - bytes(1024);
  EXPECT_EQ(step, 5 * 1024 * 64 * sizeof(float));
  EXPECT_EQ(bytes(4096) - bytes(2048), 2 * step);
  EXPECT_LT(bytes(16384), size_t{16384} * 16384 / 8);  // far below one matrix of scores
}

TEST(Attention, BadArguments_AreRefused) {
  AttentionRun<float> run(Shape(1, 8, 4, 2, 8), 36);
  Workspace workspace(AttentionWorkspaceBytes(run.shape));
  const auto forward = [&](const AttentionShape& shape, HeadsView<float> out, size_t bytes) {
    return AttentionForward<float>(shape, run.View(std::as_const(run.q)),
                                   run.View(std::as_const(run.k)), run.View(std::as_const(run.v)),
                                   out, run.lse.data(), workspace.data(), bytes);
  };
  const auto out = run.View(run.out);
  const size_t bytes = workspace.bytes();
  AttentionShape shape = run.shape;
  shape.kv_heads = 3;
  EXPECT_EQ(forward(shape, out, bytes), Status::kInvalidShape);
  shape = run.shape;
  shape.head_dim = kAttentionHeadDimMax + 1;
  EXPECT_EQ(forward(shape, out, bytes), Status::kInvalidShape);
  shape = run.shape;
  shape.scale = NAN;
  EXPECT_EQ(forward(shape, out, bytes), Status::kInvalidParameter);
  shape = run.shape;
  shape.sequence = size_t{1} << 50;
  EXPECT_EQ(forward(shape, out, bytes), Status::kSizeOverflow);
  EXPECT_EQ(forward(run.shape, {run.out.data(), 31}, bytes), Status::kInvalidShape);
  EXPECT_EQ(forward(run.shape, {run.q.data(), 32}, bytes), Status::kOverlap);
  EXPECT_EQ(forward(run.shape, {nullptr, 32}, bytes), Status::kNullPointer);
  EXPECT_EQ(forward(run.shape, out, bytes - 1), Status::kInvalidParameter);
  EXPECT_EQ(forward(run.shape, out, bytes), Status::kOk);
}

}  // namespace
}  // namespace geminid::kernels
