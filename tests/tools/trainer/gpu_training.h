// Shared by the tests of geminid-train on a GPU, end to end, on a driver without a GPU.
#ifndef GEMINID_TESTS_TOOLS_TRAINER_GPU_TRAINING_H_
#define GEMINID_TESTS_TOOLS_TRAINER_GPU_TRAINING_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/base/long_tests.h"
#include "tests/base/temporary_folder.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/gpu/double/node.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/trainer_process.h"

namespace geminid::trainer {

using Words = std::vector<std::string>;

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

enum class Products { kOwnKernels, kLibrary };

// For results that do not depend on the products' kernels. Our own kernels run each thread one
// after the other here, so only long tests use them.
inline std::vector<Products> QuickProducts() {
  if (!LongTests()) return {Products::kLibrary};
  return {Products::kOwnKernels, Products::kLibrary};
}

class GpuTraining : public ::testing::TestWithParam<Products> {
 protected:
  explicit GpuTraining(int devices = 1, int instances = 0)
      : node_({.devices = devices,
               .memory_bytes = 512 * kMiB,
               .instances = instances,
               .libcuda = GEMINID_CUDA_DOUBLE,
               .libnvml = GEMINID_NVML_DOUBLE,
               .kernels = GEMINID_DOUBLE_KERNELS,
               .libcublaslt = GetParam() == Products::kLibrary ? GEMINID_CUBLASLT_DOUBLE : "",
               .libcudnn = GetParam() == Products::kLibrary ? GEMINID_CUDNN_DOUBLE : "",
               .libnccl = GEMINID_NCCL_DOUBLE}),
        devices_(devices) {}

  // Checks that the last run used the products it should use, and reported this.
  void ExpectProducts(const nlohmann::json& report) const {
    const bool library = GetParam() == Products::kLibrary;
    const std::string by = report["products_by"];
    EXPECT_EQ(by.starts_with("cuBLASLt 13.1.0 ("), library) << by;
    EXPECT_EQ(by.starts_with("kernels of our own, since there is no cuBLASLt: "), !library) << by;
    EXPECT_EQ(node_.calls("cublasLtMatmul") > 0, library);
    EXPECT_THAT(said_, ::testing::HasSubstr(library ? "products: cuBLASLt"
                                                    : "products: kernels of our own"));
  }

  // The arguments of a run of a few steps, unless `more` says otherwise.
  Words Arguments(const Words& more) const {
    return With({"--text", text_, "--steps", "3", "--batch", "2", "--lr", "3e-3", "--context", "8",
                 "--report", folder_ / "report.json"},
                more);
  }

  // Trains, and returns the report.
  nlohmann::json Train(const Words& more) {
    const CommandResult result = RunTrainer(Arguments(more), environment_);
    EXPECT_EQ(result.code, 0) << result.err;
    said_ = result.err;
    return result.code == 0 ? Report() : nlohmann::json();
  }
  nlohmann::json Report() const {
    return nlohmann::json::parse(std::ifstream(folder_ / "report.json"));
  }

  static Words With(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Waits, because processes with memory may still be ending.
  void ExpectMemoryBack() const {
    for (int device = 0; device < devices_; ++device) {
      while (node_.used_bytes(device) != 0) std::this_thread::yield();
    }
  }

  static std::string SomeText() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i % 10) + " of the text. ";
    return text;
  }

  gpu_double::Node node_;
  const int devices_;
  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", SomeText());
  Words environment_;  // added to the test's own environment
  std::string said_;   // the output of the last run
};

// Tolerances of losses over three steps of ranks that share layers or sequences.
inline constexpr double kRounding = 1e-6;   // fp32
inline constexpr double kNarrow = 0x1p-10;  // bf16, which has 8 digits

// Compares losses. Each step's loss depends on all weights after the last step.
inline void ExpectClose(const nlohmann::json& got, const nlohmann::json& want, double tolerance) {
  ASSERT_EQ(got["loss"].size(), want["loss"].size());
  for (size_t i = 0; i < want["loss"].size(); ++i) {
    const double loss = want["loss"][i];
    EXPECT_NEAR(got["loss"][i].get<double>(), loss, tolerance * std::abs(loss)) << i;
  }
  ASSERT_EQ(got["validation"].size(), want["validation"].size());
  for (size_t i = 0; i < want["validation"].size(); ++i) {
    const double loss = want["validation"][i]["loss"];
    EXPECT_NEAR(got["validation"][i]["loss"].get<double>(), loss, tolerance * std::abs(loss)) << i;
  }
}

// Sums have another order than on the host, which changes a loss by roundings of fp32 or bf16.
inline constexpr double kFloatTolerance = 1e-4;
inline constexpr double kBFloat16Tolerance = 2e-2;

inline void ExpectNear(const nlohmann::json& report, const nlohmann::json& host, double tolerance) {
  ASSERT_EQ(report["loss"].size(), host["loss"].size());
  for (size_t i = 0; i < report["loss"].size(); ++i) {
    EXPECT_NEAR(report["loss"][i].get<double>(), host["loss"][i].get<double>(), tolerance) << i;
  }
}

// With a daemon that outlives the runs, and two GPUs.
class GpuTrainingBesideADaemon : public GpuTraining {
 protected:
  explicit GpuTrainingBesideADaemon(int devices = 2, int instances = 0,
                                    std::string of_daemon = "cuda")
      : GpuTraining(devices, instances), of_daemon_(std::move(of_daemon)) {}

  void SetUp() override {
    testing::DaemonEnvOptions options;
    options.device = of_daemon_;
    options.agent_program = GEMINID_AGENT;
    ASSERT_TRUE(env_.Start(options).ok());
    environment_ = {"GEMINID_SOCKET=" + env_.socket()};
  }

  // Kills a rank of a run with these flags. The run must name it, end within two seconds and leave
  // no memory.
  void ExpectKilledRankEndsRun(const Words& flags, int rank) {
    const std::string name = "rank " + std::to_string(rank);
    TrainerProcess run(Arguments(With(flags, {"--steps", "1000000"})), /*columns=*/400,
                       environment_);
    ASSERT_TRUE(run.WaitForStep(2)) << run.output();
    const std::vector<pid_t> ranks = run.Children("geminid-train: " + name);
    ASSERT_EQ(ranks.size(), 1u);
    kill(ranks[0], SIGKILL);
    const absl::Time killed = absl::Now();
    EXPECT_NE(run.Wait(), 0);
    EXPECT_LT(absl::Now() - killed, absl::Seconds(2));
    EXPECT_THAT(run.output(),
                ::testing::HasSubstr(name + " (pid " + std::to_string(ranks[0]) + ")"));
    ExpectMemoryBack();
  }

  const std::string of_daemon_;  // the daemon's devices
  testing::DaemonEnv env_;
};

inline std::string NameOf(const ::testing::TestParamInfo<Products>& products) {
  return products.param == Products::kLibrary ? "cuBLASLt" : "OwnKernels";
}

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TOOLS_TRAINER_GPU_TRAINING_H_
