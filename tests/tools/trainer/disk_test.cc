// State goes to disk if host memory cannot hold it. A run takes the memory of its forecast.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/command.h"
#include "training/forecast/catalogue.h"
#include "training/forecast/executable.h"
#include "training/forecast/forecast.h"
#include "training/forecast/hardware.h"
#include "training/forecast/problem.h"

namespace geminid::trainer {
namespace {

class StateOnDisk : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(disk_); }

  // The report, or nothing if host memory is refused.
  std::optional<nlohmann::json> ReportIfItFits(const std::vector<std::string>& more) const {
    const std::string path = folder_ / "report.json";
    std::vector<std::string> words = {"--text", text_, "--report", path};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = RunTrainer(words);
    if (result.code == 7) return std::nullopt;
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(std::ifstream(path), nullptr, /*allow_exceptions=*/false);
  }
  nlohmann::json Report(const std::vector<std::string>& more) const {
    const std::optional<nlohmann::json> report = ReportIfItFits(more);
    EXPECT_TRUE(report.has_value()) << "it does not fit";
    return report.value_or(nlohmann::json());
  }
  std::vector<std::string> InHostMemory(uint64_t bytes, bool has_disk = true) const {
    std::vector<std::string> flags = {"--host-memory", std::to_string(bytes) + "B"};
    if (has_disk) flags.insert(flags.end(), {"--state-disk", disk_});
    return flags;
  }

  const base::TemporaryFolder folder_;
  const std::string disk_ = folder_ / "disk";
  const std::string text_ = folder_.Write("text", std::string(4000, 'a'));
};

// A run's flags and the model of its forecast.
struct Case {
  std::string name;
  forecast::Model shape;
  uint64_t device_mib = 0;  // holds some state beside the weights
  std::vector<std::string> flags{};
  std::string optimizer = "adamw";
  uint32_t ranks = 1;
};

Case CaseOf(const std::string& preset, uint64_t layers, uint64_t device_mib) {
  Case made = {
      .name = preset, .shape = *forecast::FindTrainerModel(preset), .device_mib = device_mib};
  made.shape.layers = layers;
  made.flags = {"--model",         preset,
                "--layers",        std::to_string(layers),
                "--device-memory", std::to_string(device_mib) + "MiB"};
  return made;
}

// With a sequence for each rank.
std::vector<std::string> FlagsOf(const Case& run) {
  const std::string ranks = std::to_string(run.ranks);
  std::vector<std::string> flags = {"--optimizer", run.optimizer, "--ranks", ranks,
                                    "--batch",     ranks,         "--steps", "1"};
  flags.insert(flags.end(), run.flags.begin(), run.flags.end());
  return flags;
}

forecast::Job JobIn(const Case& run, uint64_t host_bytes, bool has_disk) {
  forecast::Job job;
  job.hardware = *forecast::FindHardware("rtx-2060-6gb");
  job.hardware.device_bytes = run.device_mib << 20;
  job.hardware.reserved_bytes = 0;
  job.ranks = run.ranks;
  job.host_bytes = host_bytes;
  job.optimizer = *forecast::FindOptimizer(run.optimizer);
  job.batch = {.sequences = 1, .sequence_length = run.shape.context};
  if (has_disk) {
    job.disk_bytes = uint64_t{1} << 40;
    job.disk_read_bytes_per_second = job.disk_write_bytes_per_second = 1e9;
  }
  return job;
}

// These optimizers have numbers per tensor, which stay in host memory.
TEST_F(StateOnDisk, BytesOfOtherOptimizers_AreThoseThatWereForecast) {
  Case run = CaseOf("llama-3m", 4, 24);
  const auto host_bytes = 10 * forecast::CountParameters(run.shape);
  for (const char* optimizer : {"lamb", "came"}) {
    SCOPED_TRACE(optimizer);
    run.optimizer = optimizer;
    const absl::StatusOr<forecast::Forecast> expected =
        forecast::MakeForecast(run.shape, JobIn(run, host_bytes, /*has_disk=*/true));
    ASSERT_TRUE(expected.ok()) << expected.status();
    std::vector<std::string> words = InHostMemory(host_bytes);
    const std::vector<std::string> flags = FlagsOf(run);
    words.insert(words.end(), flags.begin(), flags.end());
    const nlohmann::json report = Report(words);
    ASSERT_TRUE(report.is_object());
    const auto host = static_cast<double>(expected->plan.tier(planner::Tier::kHost).peak);
    const auto disk = static_cast<double>(expected->plan.disk.disk_bytes);
    EXPECT_GT(disk, 0);
    EXPECT_NEAR(report["host_bytes"].get<double>(), host, 0.01 * host);
    EXPECT_NEAR(report["state_disk_bytes"].get<double>(), disk, 0.01 * disk);
  }
}

// Compares host memory in the daemon's ledger, and files as `geminictl ls sessions` shows them.
// There are five sizes of host memory, with and without a disk.
TEST_F(StateOnDisk, BytesOfEachTier_AreThoseThatWereForecast) {
  for (const Case& run :
       {CaseOf("gpt2-3m", 4, 24), CaseOf("llama-3m", 4, 24), CaseOf("mixtral-tiny", 12, 16)}) {
    const auto parameters = static_cast<double>(forecast::CountParameters(run.shape));
    size_t mixtures = 0;
    for (const double bytes_per_parameter : {8.0, 10.0, 12.0, 14.0, 32.0}) {
      const auto host_bytes = static_cast<uint64_t>(bytes_per_parameter * parameters);
      for (const bool has_disk : {false, true}) {
        SCOPED_TRACE(testing::Message() << run.name << ", " << bytes_per_parameter
                                        << (has_disk ? ", with a disk" : ""));
        const absl::StatusOr<forecast::Forecast> expected =
            forecast::MakeForecast(run.shape, JobIn(run, host_bytes, has_disk));
        ASSERT_TRUE(expected.ok()) << expected.status();
        std::vector<std::string> words = InHostMemory(host_bytes, has_disk);
        const std::vector<std::string> flags = FlagsOf(run);
        words.insert(words.end(), flags.begin(), flags.end());
        ASSERT_EQ(expected->state_mode, forecast::StateMode::kAuto);
        const std::optional<nlohmann::json> report = ReportIfItFits(words);
        ASSERT_EQ(report.has_value(), expected->fits());
        if (!expected->fits()) continue;
        const auto host = static_cast<double>(expected->plan.tier(planner::Tier::kHost).peak);
        const auto disk = static_cast<double>(expected->plan.disk.disk_bytes);
        EXPECT_NEAR((*report)["host_bytes"].get<double>(), host, 0.01 * host);
        EXPECT_NEAR((*report)["state_disk_bytes"].get<double>(), disk, 0.01 * disk);
        mixtures += disk > 0 ? 1 : 0;
      }
    }
    EXPECT_GE(mixtures, 2u);
  }
}

// Muon has a workspace beside its state. Several ranks share memory, which is charged to the first.
// No state moves to the device here: weights that leave it outside of a plan take more memory.
class OtherRunsOnDisk : public StateOnDisk {
 protected:
  void ExpectForecast(const Case& run, bool has_disk) {
    SCOPED_TRACE(testing::Message() << run.name << ", " << run.optimizer << ", " << run.ranks
                                    << " ranks" << (has_disk ? ", with a disk" : ""));
    const absl::StatusOr<uint64_t> host_bytes =
        forecast::LeastHostBytes(run.shape, JobIn(run, uint64_t{1} << 40, has_disk));
    ASSERT_TRUE(host_bytes.ok()) << host_bytes.status();
    const absl::StatusOr<forecast::Forecast> expected =
        forecast::MakeForecast(run.shape, JobIn(run, *host_bytes, has_disk));
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_EQ(expected->state_mode, forecast::StateMode::kAuto);
    ASSERT_TRUE(expected->fits());
    std::vector<std::string> words = InHostMemory(*host_bytes, has_disk);
    const std::vector<std::string> flags = FlagsOf(run);
    words.insert(words.end(), flags.begin(), flags.end());
    if (!has_disk) words.insert(words.end(), {"--optimizer-state", "host"});
    const nlohmann::json report = Report(words);
    ASSERT_TRUE(report.is_object());
    const double host =
        run.ranks * static_cast<double>(expected->plan.tier(planner::Tier::kHost).peak);
    const double disk = run.ranks * static_cast<double>(expected->plan.disk.disk_bytes);
    EXPECT_EQ(disk > 0, has_disk);
    EXPECT_NEAR(report["host_bytes"].get<double>(), host, 0.01 * host);
    EXPECT_NEAR(report["state_disk_bytes"].get<double>(), disk, 0.01 * disk);
  }
};

TEST_F(OtherRunsOnDisk, BytesOfMuonAndOfTwoRanks_AreThoseThatWereForecast) {
  for (Case run :
       {CaseOf("gpt2-3m", 8, 24), CaseOf("llama-3m", 8, 24), CaseOf("mixtral-tiny", 24, 10)}) {
    for (const auto& [optimizer, ranks] :
         {std::pair("muon", 1), std::pair("muon", 2), std::pair("adamw", 2)}) {
      run.optimizer = optimizer;
      run.ranks = static_cast<uint32_t>(ranks);
      for (const bool has_disk : {false, true}) ExpectForecast(run, has_disk);
    }
  }
}

// The first activations leave the device for host memory; the others stay in their places.
using OffloadingRun = StateOnDisk;

TEST_F(OffloadingRun, BytesOfEachTier_AreThoseThatWereForecast) {
  for (const char* preset : {"gpt2-3m", "llama-3m"}) {
    SCOPED_TRACE(preset);
    const Case run = CaseOf(preset, 4, /*device_mib=*/12);
    forecast::Job job = JobIn(run, uint64_t{1} << 32, /*has_disk=*/false);
    job.hardware.name = "a host device";
    job.batch.sequences = 4;
    job.activations = forecast::Activations::kOffload;
    const absl::StatusOr<forecast::Forecast> expected = forecast::MakeForecast(run.shape, job);
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_TRUE(expected->fits());
    std::vector<std::string> words = run.flags;
    words.insert(words.end(),
                 {"--batch", "4", "--activations", "offload", "--steps", "3", "--threads", "1"});
    const nlohmann::json report = Report(words);
    ASSERT_TRUE(report.is_object());
    const auto of = [&](planner::Tier tier) {
      return static_cast<double>(expected->plan.tier(tier).peak);
    };
    EXPECT_NEAR(report["host_bytes"].get<double>(), of(planner::Tier::kHost),
                0.01 * of(planner::Tier::kHost));
    EXPECT_NEAR(report["device_bytes_peak"]["total"].get<double>(), of(planner::Tier::kDevice),
                0.03 * of(planner::Tier::kDevice));
    const planner::TierBytes& device = expected->plan.tier(planner::Tier::kDevice);
    EXPECT_EQ(report["activation_place_bytes"].get<uint64_t>(),
              device.of(planner::Owner::kActivations));
    EXPECT_LT(expected->plan.decisions.activation_places, 2 * run.shape.layers);
  }
}

// A checkpoint does not record where state was.
TEST_F(StateOnDisk, RunOfOneMixture_GoesOnInAnotherWithTheSameBits) {
  const auto weights = [&](const char* name, const std::vector<std::string>& first,
                           const std::vector<std::string>& second) {
    const std::string save = folder_ / name;
    std::string hash;
    for (const auto& [steps, memory] : {std::pair{"3", first}, std::pair{"5", second}}) {
      std::vector<std::string> words = {"--model", "gpt2-3m", "--batch", "1",
                                        "--steps", steps,     "--save",  save};
      if (!hash.empty()) words.emplace_back("--resume");
      words.insert(words.end(), memory.begin(), memory.end());
      const nlohmann::json report = Report(words);
      if (!report.is_object()) return std::string("no report");
      hash = report["weights_sha256"].get<std::string>();
    }
    return hash;
  };
  const std::string expected =
      weights("host", {"--optimizer-state", "host"}, {"--optimizer-state", "host"});
  const auto parameters =
      static_cast<double>(forecast::CountParameters(*forecast::FindTrainerModel("gpt2-3m")));
  const auto in = [&](double bytes) {
    return InHostMemory(static_cast<uint64_t>(bytes * parameters));
  };
  EXPECT_EQ(weights("more", in(9), in(12)), expected);
  EXPECT_EQ(weights("less", in(12), in(7)), expected);
}

}  // namespace
}  // namespace geminid::trainer
