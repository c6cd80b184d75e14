// Compares a rank's part of a model with the whole model and with published closed forms.
#include "training/meshes/mesh_rank_work.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "daemon/planner/contract/trace.h"
#include "training/forecast/catalogue.h"
#include "training/forecast/hardware.h"
#include "training/forecast/problem.h"
#include "training/meshes/stages.h"

namespace geminid::parallel {
namespace {

using collectives::TensorMode;
using forecast::Operator;
using forecast::PassDirection;

forecast::Job JobOf(std::uint32_t ranks) {
  forecast::Job job;
  job.hardware = *forecast::FindHardware("a100-80gb");
  job.ranks = ranks;
  job.host_bytes = std::uint64_t{1} << 40;
  job.batch = {.sequences = 16, .sequence_length = 2048};
  job.activations = forecast::Activations::kRecompute;
  return job;
}

double Elements(const std::vector<forecast::Tensor>& tensors) {
  double sum = 0;
  for (const forecast::Tensor& tensor : tensors) sum += static_cast<double>(tensor.elements());
  return sum;
}

MeshRankWork WorkOf(const forecast::Model& model, const forecast::Job& job, const MeshSpec& mesh) {
  return MeshRankWork(model, job, mesh, {.layers = model.layers}, 1);
}

// Data parallelism alone shards no layer, so each operator costs what it does in whole models.
// geminid-train lays out whole models in its own way, and keeps fewer activations of them.
TEST(MeshRankWork, OfDataAlone_CostsWhatWholeModelsDo) {
  for (const char* name : {"gpt2", "llama-7b", "opt-350m"}) {
    const forecast::Model model = *forecast::FindModel(name);
    for (const auto activations :
         {forecast::Activations::kRecompute, forecast::Activations::kKeep}) {
      forecast::Job job = JobOf(4);
      job.activations = activations;
      const MeshRankWork work = WorkOf(model, job, {.data = 4});
      EXPECT_EQ(Elements(work.OwnTensors()), Elements(forecast::Tensors(model)));
      const auto whole = forecast::MakeProblem(model, job);
      const auto cut = forecast::MakeProblem(model, job, work);
      ASSERT_TRUE(whole.ok() && cut.ok()) << whole.status() << cut.status();
      ASSERT_EQ(whole->trace.moments.size(), cut->trace.moments.size());
      for (std::size_t t = 0; t < whole->trace.moments.size(); ++t) {
        const planner::MomentTrace &one = whole->trace.moments[t], &other = cut->trace.moments[t];
        EXPECT_EQ(one.compute_seconds, other.compute_seconds) << name << " " << t;
        EXPECT_EQ(one.workspace_bytes, other.workspace_bytes) << name << " " << t;
      }
      ASSERT_EQ(whole->activations.size(), cut->activations.size());
      for (std::size_t i = 0; i < whole->activations.size(); ++i) {
        const planner::ActivationItem &one = whole->activations[i], &other = cut->activations[i];
        EXPECT_EQ(one.consumed, other.consumed);
        EXPECT_LE(one.bytes, other.bytes);
        EXPECT_TRUE(one.bytes == other.bytes || job.keeps());
      }
    }
  }
}

TEST(MeshRankWork, TensorsOfAllRanks_AreTheModels) {
  const forecast::Model model = *forecast::FindModel("gpt3-175b");
  const double all = static_cast<double>(CountParameters(model));
  struct Case {
    MeshSpec mesh;
    double copies;  // of each weight among the grid's ranks
  };
  for (const Case& c : {Case{{.tensor_mode = TensorMode::k1D, .tensor = 8}, 1},
                        Case{{.tensor_mode = TensorMode::k1DSequence, .tensor = 8}, 1},
                        Case{{.tensor_mode = TensorMode::k2D, .tensor = 16}, 1},
                        Case{{.tensor_mode = TensorMode::k25D, .tensor = 32, .depth = 2}, 2},
                        Case{{.tensor_mode = TensorMode::k3D, .tensor = 64}, 1}}) {
    const forecast::Job job = JobOf(static_cast<std::uint32_t>(c.mesh.tensor));
    const double own = Elements(WorkOf(model, job, c.mesh).OwnTensors());
    // Several ranks have the same norms, biases and positions.
    EXPECT_GE(own * c.mesh.tensor, all * c.copies) << ToString(c.mesh);
    EXPECT_LE(own * c.mesh.tensor, all * c.copies * 1.005) << ToString(c.mesh);
  }
}

TEST(MeshRankWork, TensorsOfAllStages_AreTheModelsAndATiedTableTwice) {
  for (const char* name : {"gpt2", "llama-7b"}) {
    const forecast::Model model = *forecast::FindModel(name);
    const forecast::Job job = JobOf(4);
    double own = 0;
    for (const forecast::ModelPart& range : SplitLayers(model.layers, 1, 4)) {
      own += Elements(MeshRankWork(model, job, {.pipeline = 4}, range, 1).OwnTensors());
    }
    const double table =
        model.tied_output() ? static_cast<double>(model.vocabulary * model.hidden) : 0;
    EXPECT_EQ(own, static_cast<double>(CountParameters(model)) + table) << name;
  }
}

// A rank keeps 1 / (d q^2) in 2.5D and 1 / d^3 in 3D of what a single rank keeps.
TEST(MeshRankWork, SavedBytes_AreTheSharesOfEachMode) {
  const forecast::Model model = *forecast::FindModel("gpt3-175b");
  const forecast::Job job = JobOf(64);
  for (const Operator part : {Operator::kAttention, Operator::kMlp}) {
    const forecast::Saved whole = SavedBytes(model, part, job.batch);
    const auto bytes = [&](TensorMode mode, int ranks, int depth) {
      const MeshSpec mesh = {.tensor_mode = mode, .tensor = ranks, .depth = depth};
      return static_cast<double>(WorkOf(model, job, mesh).SavedOf(part).bytes());
    };
    const double all = static_cast<double>(whole.bytes());
    EXPECT_NEAR(bytes(TensorMode::k2D, 16, 1), all / 16, 3);
    EXPECT_NEAR(bytes(TensorMode::k25D, 32, 2), all / 32, 3);
    EXPECT_NEAR(bytes(TensorMode::k3D, 64, 1), all / 64, 3);
    EXPECT_NEAR(bytes(TensorMode::k1DSequence, 8, 1), all / 8, 3);
    const double wide = static_cast<double>(whole.wide_bytes);
    EXPECT_NEAR(bytes(TensorMode::k1D, 8, 1), all - wide + wide / 8, 3);
  }
}

// Korthikanti et al. (arXiv:2205.05198): in 1D, each of the two norms keeps 2 s b h for its input
// and for its output. That is 8 s b h of bf16 for any number of ranks.
TEST(MeshRankWork, OneDimension_KeepsTheResidualStreamWhole) {
  const forecast::Model model = *forecast::FindModel("gpt3-175b");
  const forecast::Job job = JobOf(64);
  const double stream = 2.0 * 16 * 2048 * 12288;
  const MeshRankWork work = WorkOf(model, job, {.tensor = 64});
  const double kept = static_cast<double>(work.SavedOf(Operator::kAttention).bytes() +
                                          work.SavedOf(Operator::kMlp).bytes());
  const double inside = stream * (4 + 2 * 4) / 64;  // q, k, v, attended; two of the MLP's width
  const double statistics = 2.0 * 16 * 2048 * (2 * 4) + 4.0 * 16 * 2048 * 96 / 64;
  EXPECT_NEAR(kept, 4 * stream + inside + statistics, 8);
}

// Narayanan et al. (arXiv:2104.04473): a layer has two all-reduces forward and two backward.
TEST(MeshRankWork, OneDimension_ReceivesFourAllReducesALayer) {
  const forecast::Model model = *forecast::FindModel("gpt3-175b");
  const forecast::Job job = JobOf(8);
  const MeshRankWork work = WorkOf(model, job, {.tensor = 8});
  const double stream = 2.0 * 16 * 2048 * 12288;
  double received = 0;
  for (const Operator part : {Operator::kAttention, Operator::kMlp}) {
    for (const PassDirection turn : {PassDirection::kForward, PassDirection::kBackward}) {
      received += work.ReceivedBytesOf(part, turn);
    }
  }
  EXPECT_NEAR(received, 4 * 2 * 7.0 / 8 * stream, 1);
}

// DeepSpeed-Ulysses (arXiv:2309.14509): queries, keys, values and the result, N h / P each way.
TEST(MeshRankWork, Ulysses_ReceivesFourTensorsOfEachTurnOfAttention) {
  const forecast::Model model = *forecast::FindModel("gpt3-175b");
  const forecast::Job job = JobOf(8);
  const MeshRankWork work = WorkOf(model, job, {.sequence = 8});
  const double part = 2.0 * 16 * 2048 * 12288 / 8;
  EXPECT_NEAR(work.ReceivedBytesOf(Operator::kAttention, PassDirection::kForward), 4 * part * 7 / 8,
              1);
  EXPECT_EQ(work.ReceivedBytesOf(Operator::kMlp, PassDirection::kForward), 0);
  EXPECT_NEAR(static_cast<double>(work.SavedOf(Operator::kMlp).bytes()),
              static_cast<double>(SavedBytes(model, Operator::kMlp, job.batch).bytes()) / 8, 1);
}

// By hand: of 16 x 2048 tokens a rank has half, and a key is 4096 wide.
TEST(MeshRankWork, ARing_WaitsForWhatTakesLongerThanTheAttentionBesideIt) {
  const forecast::Model model = *forecast::FindModel("llama-7b");
  const MeshSpec mesh = {.sequence = 2, .sequence_mode = SequenceMode::kRing};
  constexpr double kKeyBytes = 16 * 1024 * 4096 * 2.0;
  const auto waits = [&](double rate, PassDirection turn) {
    forecast::Job job = JobOf(2);
    job.hardware.peer_bytes_per_second = rate;
    const MeshRankWork work = WorkOf(model, job, mesh);
    EXPECT_DOUBLE_EQ(work.ReceivedBytesOf(Operator::kAttention, turn),
                     kKeyBytes * (turn == PassDirection::kForward ? 2 : 6));
    return work.SecondsOf(Operator::kAttention, turn) -
           work.ComputeSecondsOf(Operator::kAttention, turn);
  };
  for (const auto& [turn, bytes] : {std::pair{PassDirection::kForward, 2 * kKeyBytes},
                                    std::pair{PassDirection::kBackward, 6 * kKeyBytes}}) {
    EXPECT_DOUBLE_EQ(waits(1e13, turn), 0);
    EXPECT_GT(waits(1e9, turn), 0);
    EXPECT_LT(waits(1e9, turn), bytes / 1e9);
    EXPECT_NEAR(waits(1e8, turn) - waits(1e9, turn), bytes / 1e8 - bytes / 1e9, 1e-9);
  }
}

TEST(MeshRankWork, Computation_IsCutEvenlyInEveryMode) {
  const forecast::Model model = *forecast::FindModel("gpt3-175b");
  const forecast::Job job = JobOf(64);
  const double whole =
      WorkOf(model, job, {}).ComputeSecondsOf(Operator::kMlp, PassDirection::kForward);
  for (const MeshSpec& mesh :
       {MeshSpec{.tensor = 8}, MeshSpec{.tensor_mode = TensorMode::k2D, .tensor = 16},
        MeshSpec{.tensor_mode = TensorMode::k3D, .tensor = 8},
        MeshSpec{.sequence = 4, .tensor = 2}}) {
    const MeshRankWork work = WorkOf(model, job, mesh);
    EXPECT_NEAR(work.ComputeSecondsOf(Operator::kMlp, PassDirection::kForward) * mesh.tensor *
                    mesh.sequence,
                whole, 1e-9 * whole)
        << ToString(mesh);
    EXPECT_GT(work.SecondsOf(Operator::kAttention, PassDirection::kForward),
              work.ComputeSecondsOf(Operator::kAttention, PassDirection::kForward));
  }
}

// A SUMMA product hides all but one of the q blocks of an exchange.
TEST(MeshRankWork, TwoDimensions_HideBlocksBehindProducts) {
  const forecast::Model model = *forecast::FindModel("gpt3-175b");
  forecast::Job job = JobOf(16);
  job.hardware.exchange_seconds = job.hardware.peer_message_seconds = 0;
  const MeshSpec mesh = {.tensor_mode = TensorMode::k2D, .tensor = 16};
  const MeshRankWork work = WorkOf(model, job, mesh);
  const double compute = work.ComputeSecondsOf(Operator::kMlp, PassDirection::kForward);
  const double moved = work.ReceivedBytesOf(Operator::kMlp, PassDirection::kForward) /
                       job.hardware.peer_bytes_per_second;
  ASSERT_LT(moved, compute);
  EXPECT_NEAR(work.SecondsOf(Operator::kMlp, PassDirection::kForward), compute + moved / 4,
              1e-9 * compute);
}

}  // namespace
}  // namespace geminid::parallel
