// Sequences sharded over ranks with a GPU, on a driver without a GPU. Compares with the same mesh
// on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>

#include "tests/tools/trainer/gpu_training.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;

const Words kGpt2 = {"--model", "gpt2-tiny", "--dtype", "fp32", "--batch", "4"};
const Words kLlama = {"--model", "llama-tiny", "--dtype", "bf16", "--batch", "4"};
const Words kCuda = {"--device", "cuda"};

class GpuSequenceTraining : public GpuTraining {
 protected:
  static Words Cut(const Words& model, const std::string& mesh, const Words& more = {}) {
    return With(With(model, {"--parallel", mesh}), more);
  }
  nlohmann::json TrainThere(const Words& model, const std::string& mesh, const Words& more = {}) {
    return Train(With(Cut(model, mesh, more), kCuda));
  }
  void ExpectAsOnTheHost(const Words& model, const std::string& mesh, const Words& more) {
    SCOPED_TRACE(mesh + " " + model[1]);
    const nlohmann::json there = TrainThere(model, mesh, more);
    EXPECT_THAT(there["computes_on"].get<std::string>(), HasSubstr("not a GPU"));
    EXPECT_LT(there["loss"].back(), there["loss"].front());
    ExpectClose(there, Train(Cut(model, mesh, more)), model == kLlama ? kNarrow : kRounding);
  }
};

TEST_P(GpuSequenceTraining, KeysInARing_AreThoseOfTheHostsRing) {
  const Words validated = {"--validation", "0.03"};
  ExpectAsOnTheHost(kGpt2, "sequence=ring:2", validated);
  EXPECT_EQ(Report()["keys_travel_by"], "");  // on the host
  ExpectAsOnTheHost(kLlama, "sequence=ring:2", validated);
  ExpectAsOnTheHost(kLlama, "sequence=ring:4", {"--steps", "2"});
  ExpectMemoryBack();
}

TEST_P(GpuSequenceTraining, RingsBesideOtherAxes_AreThoseOfTheHost) {
  const Words several = {"--accumulate", "2", "--steps", "2"};
  ExpectAsOnTheHost(kGpt2, "tensor=1d:2,sequence=ring:2", several);
  ExpectAsOnTheHost(kGpt2, "sequence=ring:2,data=2", several);
  ExpectAsOnTheHost(kLlama, "pipeline=2,sequence=ring:2", several);
  ExpectAsOnTheHost(kLlama, "tensor=1d:2,sequence=ring:2", several);
  ExpectMemoryBack();
}

class GpuSequenceGrids : public GpuSequenceTraining {};

// Llama-tiny has two key/value heads, which a grid and an exchange of heads would both divide.
TEST_P(GpuSequenceGrids, WithSequences_AreThoseOfTheHost) {
  ExpectAsOnTheHost(kGpt2, "tensor=2d:4,sequence=ring:2", {});
  ExpectAsOnTheHost(kGpt2, "tensor=2d:4,sequence=ulysses:2", {});
  ExpectAsOnTheHost(kGpt2, "tensor=1d-sequence:2,sequence=ulysses:2", {});
  ExpectAsOnTheHost(kLlama, "tensor=1d-sequence:2,sequence=ring:2", {});
  ExpectAsOnTheHost(kLlama, "pipeline=2,tensor=2d:4,sequence=ring:2",
                    {"--accumulate", "2", "--steps", "2"});
  ExpectMemoryBack();
}

class GpuSequenceArenas : public GpuSequenceTraining {};

// What layers work in is the arena's, so a run that is refused says a size that is enough.
TEST_P(GpuSequenceArenas, ThatAreTooSmall_AreRefusedWithASizeThatTrains) {
  for (const auto& [model, mesh] :
       {std::pair(kGpt2, "sequence=ring:2"), std::pair(kLlama, "tensor=2d:4,sequence=ring:2"),
        std::pair(kGpt2, "tensor=2d:4,sequence=ulysses:2")}) {
    SCOPED_TRACE(mesh);
    const Words run = With(
        Cut(model, mesh, {"--steps", "1", "--activations", "recompute", "--hidden", "512"}), kCuda);
    const CommandResult small =
        RunTrainer(Arguments(With(run, {"--device-memory", "2MiB"})), environment_);
    EXPECT_EQ(small.code, 7) << small.err;
    std::smatch said;
    ASSERT_TRUE(std::regex_search(small.err, said,
                                  std::regex("this run trains with --device-memory ([^;]+);")))
        << small.err;
    EXPECT_FALSE(Train(With(run, {"--device-memory", said[1]})).is_null());
  }
  ExpectMemoryBack();
}

class GpuRingArenas : public GpuSequenceTraining {};

// The weights of a rank are more than an arena of 1 MiB.
TEST_P(GpuRingArenas, OfAnySizeAndWithWhatIsComputedAgain_GiveTheSameBits) {
  const Words run = With(kLlama, {"--hidden", "128", "--layers", "7", "--steps", "2"});
  const nlohmann::json free = TrainThere(run, "sequence=ring:2");
  EXPECT_EQ(free["everything_fits"], true);
  for (const Words& where :
       {Words{"--device-memory", "1MiB"}, Words{"--activations", "recompute"}}) {
    SCOPED_TRACE(::testing::PrintToString(where));
    const nlohmann::json same = TrainThere(run, "sequence=ring:2", where);
    EXPECT_EQ(same["loss_hex"], free["loss_hex"]);
    EXPECT_EQ(same["weights_sha256"], free["weights_sha256"]);
    EXPECT_TRUE(where[0] != "--device-memory" || same["everything_fits"] == false);
  }
  ExpectMemoryBack();
}

class GpuSequenceTrainingBesideADaemon : public GpuTrainingBesideADaemon {};

TEST_P(GpuSequenceTrainingBesideADaemon, OnAGpuEach_KeysTravelByNcclWithTheBitsOfOneGpu) {
  for (const Words& model : {kGpt2, kLlama}) {
    SCOPED_TRACE(model[1]);
    const Words run =
        With(model, {"--parallel", "sequence=ring:2", "--context", "32", "--steps", "2"});
    const auto before = node_.calls("ncclSend");
    const nlohmann::json two = Train(With(run, kCuda));
    EXPECT_EQ(two["device_per_rank"], nlohmann::json({0, 1}));
    EXPECT_EQ(two["keys_travel_by"], "nccl");
    EXPECT_GT(node_.calls("ncclSend"), before);
    const nlohmann::json one = Train(With(run, {"--device", "0"}));
    EXPECT_EQ(one["device_per_rank"], nlohmann::json({0, 0}));
    EXPECT_THAT(one["keys_travel_by"].get<std::string>(), HasSubstr("host memory: ranks 0 and"));
    EXPECT_EQ(one["loss_hex"], two["loss_hex"]);
    EXPECT_EQ(one["weights_sha256"], two["weights_sha256"]);
  }
  ExpectMemoryBack();
}

TEST_P(GpuSequenceTrainingBesideADaemon, KilledRankOfARing_IsNamedAndEndsTheOther) {
  for (const Words& where : std::vector<Words>{kCuda, {"--device", "0"}}) {
    SCOPED_TRACE(where[1]);
    ExpectKilledRankEndsRun(With(With(kGpt2, where), {"--parallel", "sequence=ring:2"}),
                            /*rank=*/1);
  }
}

INSTANTIATE_TEST_SUITE_P(Products, GpuSequenceTraining, ::testing::ValuesIn(QuickProducts()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuSequenceGrids, ::testing::ValuesIn(QuickProducts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuSequenceArenas, ::testing::ValuesIn(QuickProducts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuRingArenas, ::testing::ValuesIn(QuickProducts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuSequenceTrainingBesideADaemon,
                         ::testing::Values(Products::kLibrary), NameOf);

}  // namespace
}  // namespace geminid::trainer
