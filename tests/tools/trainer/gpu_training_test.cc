// geminid-train on a GPU, end to end, on a driver without a GPU. It has a daemon of its own, the
// agent, arenas with evictions, the model's kernels on a stream, and the optimizer on either side.
// Products come from our own kernels or from a double of cuBLASLt.
#include "tests/tools/trainer/gpu_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "kernels/model/attention/attention_graph_cuda.h"
#include "tests/tools/trainer/trainer_process.h"
#include "tests/training/data/image_files.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

bool StartsWithCudnn(const std::string& attention_by) {
  return absl::StartsWith(attention_by, "cuDNN ");
}

class GpuTrainingByLibrary : public GpuTraining {};
// Weights that do not all fit.
class GpuArenas : public GpuTraining {};
// Results that do not depend on the products' kernels (QuickProducts).
class GpuOptimizers : public GpuTraining {};
class GpuMeshes : public GpuTraining {};
class GpuText : public GpuTraining {};
class GpuRanksBesideADaemon : public GpuTrainingBesideADaemon {};

TEST_P(GpuArenas, UnderEveryPlacementAndArena_HasTheBitsOfAnArenaWithoutLimit) {
  // The weights take 2.4 MB.
  const Words model = {"--model", "gpt2-tiny", "--layers", "6", "--hidden", "128",
                       "--batch", "1",         "--steps",  "2", "--device", "cuda"};
  const nlohmann::json free = Train(model);
  EXPECT_GT(node_.calls("cuLaunchKernel"), 100u);
  ExpectProducts(free);
  std::vector<Words> places = {{"--placement", "cpu"}, {"--device-memory", "2MiB"}};
  if (GetParam() == Products::kLibrary || LongTests()) {
    places.insert(places.end(), {{"--placement", "device"},
                                 {"--device-memory", "2MiB", "--activations", "keep"},
                                 {"--optimizer-state", "host"}});
  }
  for (const Words& where : places) {
    const nlohmann::json report = Train(With(model, where));
    EXPECT_EQ(report["loss_hex"], free["loss_hex"]) << where[1];
    EXPECT_EQ(report["weights_sha256"], free["weights_sha256"]) << where[1];
    EXPECT_TRUE(where[0] != "--device-memory" || report["everything_fits"] == false) << where[1];
  }
  ExpectMemoryBack();
}

// A stream that waits for a word of the host's stops for the time in which a thread wakes up. It
// does so for chunks of weights and gradients that arrive. It must not do so for the engine's four
// notes of each operator.
TEST_P(GpuOptimizers, WhereEverythingFits_OperatorsThemselvesDoNotStopTheirStreamForTheHost) {
  constexpr uint64_t kSteps = 4, kOperators = 2 * (1 + 2 * 4 + 1);  // forward and backward
  const Words model = {"--model", "gpt2-tiny", "--layers", "4", "--device", "cuda"};
  const auto waits = [&](const std::string& steps) {
    const uint64_t before = node_.calls("cuStreamWaitValue64");
    Train(With(model, {"--steps", steps}));
    return node_.calls("cuStreamWaitValue64") - before;
  };
  const uint64_t few = waits("3");
  EXPECT_LT(waits(std::to_string(3 + kSteps)) - few, kSteps * 2 * kOperators);
}

TEST_P(GpuTraining, LossesAreThoseOfTheHostToRounding) {
  for (const Words& model :
       std::vector<Words>{{"--model", "gpt2-tiny", "--dtype", "fp32"},
                          {"--model", "llama-tiny", "--dtype", "bf16"},
                          {"--model", "mistral-tiny", "--dtype", "fp32"},
                          {"--model", "mistral-tiny", "--dtype", "bf16"},
                          {"--model", "qwen3-tiny", "--dtype", "fp32"},
                          {"--model", "pythia-tiny", "--dtype", "fp32"},
                          {"--model", "pythia-tiny", "--dtype", "bf16"},
                          {"--model", "bert-tiny", "--dtype", "fp32", "--dropout", "0.1"},
                          {"--model", "bert-tiny", "--dtype", "bf16"},
                          {"--model", "gpt2-tiny", "--dtype", "fp32", "--family", "opt"},
                          {"--model", "gpt2-tiny", "--dtype", "bf16", "--vocabulary", "301"}}) {
    const nlohmann::json host = Train(model);
    const nlohmann::json gpu = Train(With(model, {"--device", "cuda"}));
    ExpectNear(gpu, host, model[3] == "fp32" ? kFloatTolerance : kBFloat16Tolerance);
    if (model[1] == "bert-tiny") continue;  // each step masks other tokens
    EXPECT_LT(gpu["loss"].back(), gpu["loss"].front());
  }
}

TEST_P(GpuTraining, OfImages_LossesAndAccuracyAreThoseOfTheHostToRounding) {
  const std::string images =
      folder_.Write("images.safetensors", RandomImageFile(12, 3, 32, 10, /*seed=*/1));
  const auto train = [&](const Words& more) {
    const Words words = With({"--images", images, "--model", "vit-tiny", "--steps", "2", "--batch",
                              "2", "--dropout", "0.1", "--validation", "0.5",
                              "--validation-batches", "2", "--report", folder_ / "report.json"},
                             more);
    const CommandResult result = RunTrainer(words, environment_);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.code == 0 ? Report() : nlohmann::json();
  };
  for (const char* const type : {"fp32", "bf16"}) {
    const nlohmann::json host = train({"--dtype", type});
    const nlohmann::json gpu = train({"--dtype", type, "--device", "cuda"});
    ExpectNear(gpu, host, type == std::string("fp32") ? kFloatTolerance : kBFloat16Tolerance);
    if (type == std::string("bf16")) continue;  // rounding may turn an answer
    EXPECT_EQ(gpu["validation"].back()["accuracy"], host["validation"].back()["accuracy"]);
  }
}

TEST_P(GpuOptimizers, OfWholeTensorsWithTheirStateThere_HaveTheHostsBitsAndBringNothingDown) {
  const Words model = {"--model", "gpt2-tiny", "--dtype", "fp32", "--steps", "2"};
  const auto train = [&](const std::string& optimizer, const Words& where) {
    const uint64_t before = node_.bytes_to_host(0);
    const nlohmann::json report =
        Train(With(With(model, {"--optimizer", optimizer, "--device", "cuda"}), where));
    return std::pair(report, node_.bytes_to_host(0) - before);
  };
  // In the first place the factors of rows and columns are in the arena, in the second on the host.
  const std::vector<Words> places = {{"--placement", "device"}, {"--optimizer-state", "device"}};
  std::vector<uint64_t> beside_the_steps;  // bytes to the host with any optimizer
  for (const Words& where : places) beside_the_steps.push_back(train("adamw", where).second);
  for (const std::string optimizer : {"lamb", "lars", "adafactor", "came"}) {
    const auto [by_host, unused] = train(optimizer, {"--optimizer-state", "host"});
    for (size_t i = 0; i < places.size(); ++i) {
      SCOPED_TRACE(optimizer + " with " + places[i][0]);
      const auto [there, brought_down] = train(optimizer, places[i]);
      // Two numbers per tensor and step would be a tenth of this; one array of the state would be
      // 40 times as much.
      EXPECT_LT(brought_down, beside_the_steps[i] + 8 * 1024);
      EXPECT_EQ(there["loss_hex"], by_host["loss_hex"]);
      EXPECT_EQ(there["weights_sha256"], by_host["weights_sha256"]);
    }
    // With streamed state the sums are those of the host.
    const nlohmann::json streamed = train(optimizer, {"--optimizer-state", "streamed"}).first;
    EXPECT_EQ(streamed["loss_hex"], by_host["loss_hex"]) << optimizer;
    EXPECT_EQ(streamed["weights_sha256"], by_host["weights_sha256"]) << optimizer;
    ExpectNear(by_host, Train(With(model, {"--optimizer", optimizer})), kFloatTolerance);
  }
}

TEST_P(GpuTraining, WithDropoutAdaptersAndSeveralMicroBatches_ComputesWhatTheHostDoes) {
  for (const Words& model : std::vector<Words>{
           {"--model", "gpt2-tiny", "--dropout", "0.1", "--accumulate", "2", "--batch", "1"},
           {"--model", "llama-tiny", "--lora-rank", "4", "--validation", "0.2"}}) {
    const nlohmann::json host = Train(With(model, {"--dtype", "fp32"}));
    const nlohmann::json gpu = Train(With(model, {"--dtype", "fp32", "--device", "cuda"}));
    EXPECT_EQ(host["computes_on"], "host");
    EXPECT_THAT(gpu["computes_on"].get<std::string>(), HasSubstr("not a GPU"));
    ExpectNear(gpu, host, kFloatTolerance);
    EXPECT_EQ(gpu["validation"].size(), host["validation"].size());
  }
}

// Except for a table on two stages, whose gradients are added in another order.
TEST_P(GpuMeshes, StagesOfAPipeline_HaveTheBitsOfOneRankWhateverTheArena) {
  for (const Words& model : std::vector<Words>{{"--model", "gpt2-tiny", "--dtype", "fp32"},
                                               {"--model", "llama-tiny", "--dtype", "bf16"}}) {
    const Words run = With(model, {"--layers", "4", "--device", "cuda", "--batch", "1",
                                   "--accumulate", "2", "--clip-norm", "0", "--steps", "2"});
    const Words cut = With(run, {"--parallel", "pipeline=2"});
    const nlohmann::json one = Train(run);
    const nlohmann::json two = Train(cut);
    EXPECT_EQ(two["device_per_rank"], nlohmann::json({0, 0}));
    EXPECT_THAT(two["computes_on"].get<std::string>(), HasSubstr("not a GPU"));
    ExpectNear(two, one, kFloatTolerance);
    if (model[1] == "llama-tiny") {
      EXPECT_EQ(two["weights_sha256"], one["weights_sha256"]);
      const nlohmann::json in_halves = Train(With(run, {"--parallel", "pipeline=zbv:2"}));
      EXPECT_EQ(in_halves["weights_sha256"], one["weights_sha256"]);
    }
    const bool tied = model[1] == "gpt2-tiny";
    std::vector<Words> places = {{"--placement", "cpu"}};
    if (tied || LongTests()) places.push_back({"--optimizer-state", "host"});
    if (!tied || LongTests()) places.push_back({"--device-memory", "2MiB"});
    for (const Words& where : places) {
      const nlohmann::json same = Train(With(cut, where));
      EXPECT_EQ(same["loss_hex"], two["loss_hex"]) << model[1] << " " << where[1];
      EXPECT_EQ(same["weights_sha256"], two["weights_sha256"]) << model[1] << " " << where[1];
    }
  }
  ExpectMemoryBack();
}

// The sums are over tensors of all stages, wherever each stage's state is.
TEST_P(GpuOptimizers, OfWholeTensorsOnStages_ComputeWhatTheHostDoes) {
  for (const auto& [optimizer, rate] : {std::pair("lamb", "2e-2"), std::pair("came", "1e-4")}) {
    const Words run = {"--model",     "gpt2-tiny", "--layers", "4", "--dtype",      "fp32",
                       "--batch",     "1",         "--steps",  "2", "--accumulate", "2",
                       "--optimizer", optimizer,   "--lr",     rate};
    const Words cut = With(run, {"--device", "cuda", "--parallel", "pipeline=2"});
    const nlohmann::json there = Train(With(cut, {"--optimizer-state", "device"}));
    ExpectNear(there, Train(run), kFloatTolerance);
    EXPECT_EQ(Train(With(cut, {"--optimizer-state", "host"}))["weights_sha256"],
              there["weights_sha256"]);
  }
}

TEST_P(GpuMeshes, SequencesCutByHeads_ComputeWhatWholeOnesDo) {
  for (const Words& model : std::vector<Words>{{"--model", "gpt2-tiny", "--dtype", "fp32"},
                                               {"--model", "llama-tiny", "--dtype", "bf16"}}) {
    const Words run = With(model, {"--device", "cuda"});
    const nlohmann::json cut = Train(With(run, {"--parallel", "sequence=ulysses:2"}));
    EXPECT_THAT(cut["computes_on"].get<std::string>(), HasSubstr("not a GPU"));
    ExpectNear(cut, Train(run), model[3] == "fp32" ? kFloatTolerance : kBFloat16Tolerance);
  }
}

TEST_P(GpuText, OfValuesThatWereTrainedThere_IsTheHostsWithKeysRememberedOrNot) {
  for (const std::string model : {"gpt2-tiny", "llama-tiny"}) {
    // Trains a little, so that the likeliest token is not a tie. The last step is on the GPU.
    const std::string begun = folder_ / ("begun " + model);
    const std::string saved = folder_ / ("saved " + model);
    const Words longer = {"--context", "32"};
    Train(With(longer, {"--model", model, "--steps", "40", "--lr", "5e-3", "--save", begun}));
    Train(With(longer, {"--load", begun, "--device", "cuda", "--steps", "1", "--save", saved}));
    const Words generate = {"generate", "--load", saved, "--prompt", "line 3 of", "--tokens", "6"};
    const auto text = [&](const Words& more) {
      const CommandResult result = RunTrainer(With(generate, more));
      EXPECT_EQ(result.code, 0) << result.err;
      return result.out;
    };
    const std::string host = text({});
    EXPECT_THAT(host, ::testing::StartsWith("line 3 of"));
    for (const Words& how : std::vector<Words>{{"--kv-cache", "on"},
                                               {"--kv-cache", "off"},
                                               {"--kv-cache", "auto", "--placement", "cpu"}}) {
      EXPECT_EQ(text(With({"--device", "cuda"}, how)), host) << model << " " << how[1];
    }
    // At a higher temperature all of a token's bits matter.
    const Words bold = {"--device", "cuda", "--temperature", "1.5"};
    EXPECT_EQ(text(With(bold, {"--kv-cache", "on"})), text(With(bold, {"--kv-cache", "off"})));
  }
}

// The times in a run's line about its activations. A choice that was impossible takes for ever.
struct Measured {
  double keep_ms = std::numeric_limits<double>::infinity();
  double offload_ms = std::numeric_limits<double>::infinity();
  double recompute_ms = std::numeric_limits<double>::infinity();

  double Of(const std::string& activations) const {
    return activations == "keep" ? keep_ms : activations == "offload" ? offload_ms : recompute_ms;
  }
  double least() const { return std::min({keep_ms, offload_ms, recompute_ms}); }
};
Measured MeasuredIn(const std::string& said) {
  const auto find = [&](const char* words, double* ms) {
    std::smatch match;
    if (std::regex_search(said, match, std::regex(words))) *ms = std::stod(match[1]);
  };
  Measured measured;
  find("recomputing them takes ([0-9.]+) ms", &measured.recompute_ms);
  find("to host memory and back ([0-9.]+) ms", &measured.offload_ms);
  find("of them evict ([0-9.]+) ms", &measured.keep_ms);
  EXPECT_LT(measured.recompute_ms, 1e6) << said;
  EXPECT_LT(measured.keep_ms, 1e6) << said;
  return measured;
}

TEST_P(GpuArenas, WhereWeightsWouldLeaveForActivations_TakesWhatItMeasuredToBeShorter) {
  const Words model = {
      "--model", "gpt2-tiny", "--layers",        "10",   "--hidden",          "128",
      "--batch", "1",         "--device",        "cuda", "--optimizer-state", "host",
      "--steps", "1",         "--device-memory", "4MiB", "--context",         "32"};
  const nlohmann::json fast = Train(model);
  const Measured by_memcpy = MeasuredIn(said_);
  constexpr uint64_t kSlowBytesPerSecond = 4 * kMiB;
  node_.SetCopySpeed(0, kSlowBytesPerSecond);
  const nlohmann::json slow = Train(model);
  const Measured by_slow_link = MeasuredIn(said_);
  // 0.63 MiB of weights would be evicted, and loaded twice. A slow link takes at least this time.
  EXPECT_GT(by_slow_link.keep_ms, 1e3 * 2 * 0.6 * kMiB / kSlowBytesPerSecond);
  for (const auto& [report, measured] :
       {std::pair(fast, by_memcpy), std::pair(slow, by_slow_link)}) {
    EXPECT_GT(measured.recompute_ms, 0);
    EXPECT_EQ(measured.Of(report["activations"]), measured.least());
  }
  EXPECT_EQ(slow["loss_hex"], fast["loss_hex"]);
}

TEST_P(GpuArenas, ActivationsInHostMemory_HaveTheBitsOfThoseThatStay) {
  for (const char* family : {"gpt2-tiny", "llama-tiny"}) {
    const Words model = {"--model",   family, "--layers", "8", "--device",          "cuda",
                         "--dtype",   "bf16", "--steps",  "2", "--optimizer-state", "host",
                         "--dropout", "0.1",  "--batch",  "4", "--hidden",          "128"};
    const nlohmann::json stays = Train(With(model, {"--activations", "keep"}));
    const nlohmann::json leaves =
        Train(With(model, {"--activations", "offload", "--device-memory", "2MiB"}));
    EXPECT_EQ(leaves["activations"], "offload");
    EXPECT_GT(leaves["activation_bytes"], 0);
    EXPECT_EQ(stays["activation_bytes"], 0);
    EXPECT_EQ(leaves["loss_hex"], stays["loss_hex"]) << family;
    EXPECT_EQ(leaves["weights_sha256"], stays["weights_sha256"]) << family;
  }
  ExpectMemoryBack();
}

TEST_P(GpuTrainingByLibrary, ProductsThatTheLibraryCannot_AreTheKernels) {
  const Words model = {"--model", "gpt2-tiny", "--dtype", "fp32"};
  const nlohmann::json host = Train(model);
  constexpr int kNotSupported = 15;
  node_.FailLibrary("cublasLtMatmulAlgoGetHeuristic", kNotSupported, /*skips=*/2, /*times=*/3);
  const nlohmann::json gpu = Train(With(model, {"--device", "cuda"}));
  EXPECT_THAT(gpu["products_by"].get<std::string>(), HasSubstr("kernels of our own for 3 of "));
  ExpectNear(gpu, host, kFloatTolerance);
}

TEST_P(GpuTrainingByLibrary, LibraryThatDoesNotStart_IsDoneWithout) {
  constexpr int kNotInitialized = 1;
  node_.FailLibrary("cublasLtCreate", kNotInitialized);
  const nlohmann::json gpu = Train({"--model", "gpt2-tiny", "--device", "cuda"});
  EXPECT_THAT(gpu["products_by"].get<std::string>(), HasSubstr("does not start"));
  EXPECT_LT(gpu["loss"].back(), gpu["loss"].front());
}

TEST_P(GpuTrainingByLibrary, AttentionThatPassesItsTest_IsCudnnsUnderEveryPlacement) {
  const Words model = {"--model", "llama-tiny", "--dtype", "bf16"};
  const nlohmann::json host = Train(model);
  const nlohmann::json gpu = Train(With(model, {"--device", "cuda"}));
  EXPECT_THAT(gpu["attention_by"].get<std::string>(), StartsWith("cuDNN 9.19.0 ("));
  EXPECT_THAT(gpu["attention_by"].get<std::string>(), Not(HasSubstr("a kernel of our own")));
  EXPECT_THAT(said_, HasSubstr("attention: cuDNN"));
  constexpr uint64_t kOfTest = 2 * 10, kOfSteps = 3 * 2 * 2;  // both passes of both layers
  EXPECT_GE(node_.calls("cudnnBackendExecute"), kOfTest + kOfSteps);
  ExpectNear(gpu, host, kBFloat16Tolerance);
  const nlohmann::json little = Train(With(model, {"--device", "cuda", "--placement", "cpu"}));
  EXPECT_EQ(little["loss_hex"], gpu["loss_hex"]);
}

TEST_P(GpuTrainingByLibrary, AttentionThatFailsItsTest_IsTheKernelAndSaysWhy) {
  const Words model = {"--model", "llama-tiny", "--dtype", "bf16", "--device", "cuda"};
  environment_ = {"GEMINID_LIBCUDNN=none"};
  const nlohmann::json without = Train(model);
  EXPECT_THAT(without["attention_by"].get<std::string>(), HasSubstr("there is no cuDNN"));
  environment_ = {};
  node_.SetAttentionWrong(kernels::kAttentionDk);
  const nlohmann::json refused = Train(model);
  EXPECT_THAT(refused["attention_by"].get<std::string>(), HasSubstr("its dk is"));
  EXPECT_EQ(refused["loss_hex"], without["loss_hex"]);
  node_.SetAttentionWrong(0);
}

// All micro-batches have the same tables. Only the tokens are new.
TEST_P(GpuTrainingByLibrary, RotaryTables_AreUploadedOnceForAllMicroBatches) {
  const auto uploads_of_a_micro_batch = [&](const std::string& name) {
    const auto uploads = [&](const std::string& micro_batches) {
      const uint64_t before = node_.calls("cuMemcpyHtoDAsync");
      Train({"--model", name, "--device", "cuda", "--placement", "device", "--accumulate",
             micro_batches, "--steps", "2"});
      return node_.calls("cuMemcpyHtoDAsync") - before;
    };
    const uint64_t of_one = uploads("1");
    return (uploads("5") - of_one) / (2 * 4);
  };
  EXPECT_EQ(uploads_of_a_micro_batch("llama-tiny"), uploads_of_a_micro_batch("gpt2-tiny"));
}

TEST_P(GpuTraining, WithoutAGpu_IsRefusedWithAWayOut) {
  node_.SetLost(0, true);
  Train({"--model", "gpt2-tiny"});  // the host device still works
  const CommandResult result = RunTrainer({"--text", text_, "--model", "gpt2-tiny", "--steps", "1",
                                           "--batch", "1", "--device", "cuda"});
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("a GPU is left out"));
}

// The sums of rows and columns are over tensors that both ranks have shards of.
TEST_P(GpuRanksBesideADaemon, TwoRanksThatKeepFactorsOnTheirGpus_HaveTheBitsOfTheHostsSteps) {
  for (const std::string optimizer : {"adafactor", "came"}) {
    const Words model = {"--model",  "gpt2-tiny", "--ranks",     "2",
                         "--device", "cuda",      "--optimizer", optimizer};
    const nlohmann::json host = Train(With(model, {"--optimizer-state", "host"}));
    for (const Words& where :
         std::vector<Words>{{"--placement", "device"}, {"--optimizer-state", "device"}}) {
      const nlohmann::json there = Train(With(model, where));
      EXPECT_EQ(there["loss_hex"], host["loss_hex"]) << optimizer << " " << where[0];
      EXPECT_EQ(there["weights_sha256"], host["weights_sha256"]) << optimizer << " " << where[0];
    }
  }
}

TEST_P(GpuTrainingBesideADaemon, TwoRanksOnOneGpuOrOnTwo_HaveTheSameBits) {
  const Words model = {"--model", "gpt2-tiny", "--ranks", "2"};
  const nlohmann::json two = Train(With(model, {"--device", "cuda"}));
  EXPECT_EQ(two["device_per_rank"], nlohmann::json({0, 1}));
  EXPECT_EQ(two["ranks_exchange_by"], "nccl");
  EXPECT_GT(node_.calls("ncclAllGather"), 0u);
  EXPECT_GT(two["nccl_registered_bytes"], 2 * kMiB);  // the arena
  EXPECT_EQ(node_.calls("ncclCommRegister"), node_.calls("ncclCommDeregister"));
  const Words on_one = With(model, {"--device", "0"});
  // The bytes to the host without a ticket.
  const auto unaccounted = [&](const nlohmann::json& report, uint64_t before) {
    return static_cast<double>(node_.bytes_to_host(0) - before) - report["d2h_bytes"].get<double>();
  };
  for (const Words& where : std::vector<Words>{{"--placement", "auto"},
                                               {"--placement", "cpu"},
                                               {"--device-memory", "2MiB"},
                                               {"--optimizer-state", "host"},
                                               {"--optimizer-state", "streamed"}}) {
    const uint64_t before = node_.bytes_to_host(0);
    const nlohmann::json one = Train(With(on_one, where));
    EXPECT_EQ(one["device_per_rank"], nlohmann::json({0, 0}));
    EXPECT_THAT(one["ranks_exchange_by"].get<std::string>(), HasSubstr("host memory: ranks 0 and"));
    EXPECT_EQ(one["loss_hex"], two["loss_hex"]) << where[1];
    EXPECT_EQ(one["weights_sha256"], two["weights_sha256"]) << where[1];
    if (where[1] != "cpu") continue;  // in other cases the weights go to the host at the end
    // All traffic to the host has tickets, including the ranks' exchanges. The exceptions are a few
    // sums, and the test of cuDNN's attention before the first step.
    const double once = unaccounted(one, before);
    if (!StartsWithCudnn(one["attention_by"])) {
      EXPECT_NEAR(once, 0, 1024);
    }
    const uint64_t then = node_.bytes_to_host(0);
    EXPECT_NEAR(unaccounted(Train(With(With(on_one, where), {"--steps", "6"})), then), once, 1024);
  }
  ExpectMemoryBack();
  environment_.clear();
  ExpectNear(two, Train(model), kBFloat16Tolerance);
}

TEST_P(GpuRanksBesideADaemon, StagesOfSeveralRanks_HaveTheBitsOfRanksWithWholeModels) {
  const Words model = {"--model", "llama-tiny", "--accumulate", "2", "--clip-norm", "0"};
  const nlohmann::json whole = Train(With(model, {"--ranks", "2", "--device", "cuda"}));
  for (const std::string device : {"cuda", "0"}) {  // two GPUs, or one that all ranks share
    const nlohmann::json cut =
        Train(With(model, {"--parallel", "pipeline=2,data=2", "--device", device}));
    EXPECT_EQ(cut["loss_hex"], whole["loss_hex"]) << device;
    EXPECT_EQ(cut["weights_sha256"], whole["weights_sha256"]) << device;
  }
  ExpectMemoryBack();
}

TEST_P(GpuRanksBesideADaemon, KilledRank_LeavesTheMemoryOfTheGpusAsItWas) {
  TrainerProcess run(Arguments({"--model", "gpt2-tiny", "--ranks", "2", "--steps", "1000000"}),
                     /*columns=*/100, environment_);
  ASSERT_TRUE(run.WaitForStep(2)) << run.output();
  EXPECT_GT(node_.used_bytes(0), 0u);
  EXPECT_GT(node_.used_bytes(1), 0u);
  const std::vector<pid_t> ranks = run.Children("geminid-train: rank 1");
  ASSERT_EQ(ranks.size(), 1u);
  kill(ranks[0], SIGKILL);
  EXPECT_NE(run.Wait(), 0);
  ExpectMemoryBack();
  EXPECT_EQ(Train({"--model", "gpt2-tiny", "--device", "cuda"})["loss"].size(), 3u);
}

TEST_P(GpuRanksBesideADaemon, KilledAgents_CostTheRunNothingAndLeaveTheMemoryAsItWas) {
  const Words model = {"--model", "gpt2-tiny", "--ranks", "2", "--device", "cuda"};
  const nlohmann::json undisturbed = Train(With(model, {"--steps", "8"}));
  TrainerProcess run(Arguments(With(model, {"--steps", "8"})), /*columns=*/100, environment_);
  ASSERT_TRUE(run.WaitForStep(2)) << run.output();
  const std::vector<pid_t> agents = OwnChildren(GEMINID_AGENT);
  EXPECT_EQ(agents.size(), 2u);
  for (const pid_t agent : agents) kill(agent, SIGKILL);
  EXPECT_EQ(run.Wait(), 0) << run.output();
  EXPECT_EQ(Report()["loss_hex"], undisturbed["loss_hex"]);
  EXPECT_EQ(Report()["weights_sha256"], undisturbed["weights_sha256"]);
  ExpectMemoryBack();
}

// One GPU, divided into two instances.
class GpuTrainingOnInstances : public GpuTrainingBesideADaemon {
 protected:
  GpuTrainingOnInstances() : GpuTrainingBesideADaemon(/*devices=*/1, /*instances=*/2) {}
};

TEST_P(GpuTrainingOnInstances, EachInstance_IsADeviceThatTrains) {
  const Words model = {"--model", "gpt2-tiny", "--device-memory", "2MiB"};
  const nlohmann::json first = Train(With(model, {"--device", "0"}));
  EXPECT_THAT(first["computes_on"].get<std::string>(), HasSubstr(" MIG "));
  // A process sees the first instance unless it is told of another one.
  const Words on_second = Arguments(With(model, {"--device", "1"}));
  const CommandResult refused = RunTrainer(on_second, environment_);
  EXPECT_NE(refused.code, 0);
  const std::string uuid = gpu_double::InstanceUuidOf(1);
  EXPECT_THAT(refused.err, HasSubstr("start the process with CUDA_VISIBLE_DEVICES=" + uuid));
  environment_.push_back("CUDA_VISIBLE_DEVICES=" + uuid);
  const nlohmann::json second = Train(With(model, {"--device", "1", "--ranks", "2"}));
  EXPECT_EQ(second["device_per_rank"], nlohmann::json({1, 1}));
  const nlohmann::json alone = Train(With(model, {"--device", "1"}));
  EXPECT_EQ(alone["loss_hex"], first["loss_hex"]);
  ExpectMemoryBack();
}

INSTANTIATE_TEST_SUITE_P(Products, GpuTraining,
                         ::testing::Values(Products::kOwnKernels, Products::kLibrary), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuArenas,
                         ::testing::Values(Products::kOwnKernels, Products::kLibrary), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuOptimizers, ::testing::ValuesIn(QuickProducts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuMeshes, ::testing::ValuesIn(QuickProducts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuText, ::testing::ValuesIn(QuickProducts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuRanksBesideADaemon, ::testing::ValuesIn(QuickProducts()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuTrainingByLibrary, ::testing::Values(Products::kLibrary),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuTrainingOnInstances, ::testing::Values(Products::kLibrary),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuTrainingBesideADaemon,
                         ::testing::Values(Products::kOwnKernels, Products::kLibrary), NameOf);

}  // namespace
}  // namespace geminid::trainer
