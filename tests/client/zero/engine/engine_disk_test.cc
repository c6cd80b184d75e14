// State on disk: its bits equal those of state in host memory. Also the traffic of the disks, the
// files that remain, and a disk that is full.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/disk/stripes.h"
#include "client/zero/state/disk_choice.h"
#include "tests/base/temporary_folder.h"
#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class EngineDiskTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    for (const char* disk : {"a", "b", "c"}) std::filesystem::create_directory(folder_ / disk);
    run_.options.state_placement = StatePlacement::kDisk;
    run_.options.state_disk.folders = {folder_ / "a"};
  }

  SyntheticRun OnHost() const {
    SyntheticRun host = run_;
    host.options.state_placement = StatePlacement::kHost;
    host.options.state_disk = {};
    return host;
  }
  std::vector<std::vector<float>> WeightsOnHost() {
    const absl::StatusOr<SyntheticResult> result = Train(OnHost());
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->weights : std::vector<std::vector<float>>();
  }
  absl::Status Refused() {
    SyntheticResult none;
    return TrainStatuses(run_, &none)[0];
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      if (entry.is_regular_file()) files.push_back(entry.path().string());
    }
    return files;
  }

  // The bytes of all sessions' files in the daemon's ledger.
  uint64_t DiskInLedger() {
    const std::string page = env_.MetricsPage();
    const std::string line = "\ngeminid_tier_bytes{tier=\"disk\",state=\"in_use\"} ";
    const size_t begin = page.find(line);
    return begin == std::string::npos ? 0 : std::stoull(page.substr(begin + line.size()));
  }

  // Overwrites a rank's whole file except its header.
  static void Overwrite(const std::string& folder, const std::string& rank) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().string().find(rank) == std::string::npos) continue;
      std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(static_cast<std::streamoff>(disk::kStripeBytes));
      file << std::string(entry.file_size() - disk::kStripeBytes, 'x');
    }
  }

  base::TemporaryFolder folder_;
};

TEST_F(EngineDiskTest, EveryWorldSizeArenaAndPlacement_GivesTheBitsOfDenseTraining) {
  run_.model = MixedModel(DataType::kFloat32);
  for (const int world_size : {1, 2}) {
    for (const int accumulate : {1, 2}) {
      run_.world_size = world_size;
      run_.options.accumulate = accumulate;
      const std::vector<std::vector<float>> expected = TrainDensely(run_);
      for (auto [placement, arena] :
           {std::pair{Placement::kAuto, 8 << 20}, std::pair{Placement::kCpu, 512 << 10}}) {
        SCOPED_TRACE(::testing::Message() << "world " << world_size << ", accumulate " << accumulate
                                          << ", arena " << arena);
        run_.options.placement = placement;
        run_.arena_bytes = static_cast<uint64_t>(arena);
        ExpectSameBits(MustTrain().weights, expected);
      }
    }
  }
}

TEST_F(EngineDiskTest, EveryOptimizerAndTypeOfState_GivesTheBitsOfStateOnTheHost) {
  run_.world_size = 2;
  run_.steps = 3;
  run_.options.clip_norm = 1;
  for (const Optimizer& optimizer :
       {Optimizer(AdamWOptions{}), Optimizer(AdamOptions{.weight_decay = 0.01}),
        Optimizer(LionOptions{}), Optimizer(AdagradOptions{}),
        Optimizer(SgdOptions{.momentum = 0.9})}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
      SCOPED_TRACE(::testing::Message() << Name(optimizer) << ", type " << static_cast<int>(type));
      run_.options.optimizer = optimizer;
      run_.options.state_type = type;
      ExpectSameBits(MustTrain().weights, WeightsOnHost());
    }
  }
}

// The optimizers sum over all state before any of it is updated. Matrices are whole.
TEST_F(EngineDiskTest, OptimizersThatNeedSumsOrWholeMatrices_GiveTheBitsOfStateOnTheHost) {
  run_.steps = 3;
  run_.options.clip_norm = 1;
  for (const Optimizer& optimizer :
       {Optimizer(LambOptions{}), Optimizer(LarsOptions{}), Optimizer(AdafactorOptions{}),
        Optimizer(AdafactorOptions{.beta1 = 0.9}), Optimizer(CameOptions{}),
        Optimizer(MuonOptions{})}) {
    for (Parameter& parameter : run_.model.parameters) {
      parameter.orthogonal = std::holds_alternative<MuonOptions>(optimizer) &&
                             parameter.shape.size() == 2 && parameter.name != "embedding";
    }
    run_.options.optimizer = optimizer;
    for (const auto& [world_size, accumulate] : {std::pair{1, 2}, std::pair{2, 1}}) {
      SCOPED_TRACE(::testing::Message() << Name(optimizer) << ", world " << world_size);
      run_.world_size = world_size;
      run_.options.accumulate = accumulate;
      const SyntheticResult result = MustTrain();
      EXPECT_GT(result.statistics[0].disk_read_bytes, 0u);
      ExpectSameBits(result.weights, WeightsOnHost());
    }
  }
}

// One rank's disk has lost state that the sums need. No replacement resumes from it.
TEST_F(EngineDiskTest, StateThatSumsCannotRead_EndsTheRunOnAllRanks) {
  run_.run = "sums";
  run_.world_size = 2;
  run_.options.optimizer = LambOptions{};
  run_.between_steps = [&](Engine* engine, int rank, int step) {
    if (step != 1) return;
    // These reads wait for all updates.
    for (uint32_t id = 0; id < run_.model.parameters.size(); ++id) {
      ASSERT_TRUE(engine->ReadParameter(ParameterId{id}).ok());
    }
    if (rank == 0) Overwrite(folder_ / "a", "rank0");
  };
  SyntheticResult none;
  const std::vector<absl::Status> statuses = TrainStatuses(run_, &none);
  EXPECT_TRUE(absl::IsDataLoss(statuses[0])) << statuses[0];
  EXPECT_FALSE(statuses[1].ok());
  run_.between_steps = {};
  run_.options.resume = true;
  EXPECT_EQ(MustTrain().steps.size(), static_cast<size_t>(run_.steps));
}

TEST_F(EngineDiskTest, OptimizersWithoutArrays_KeepRemaindersThereOrNothing) {
  run_.options.optimizer = SgdOptions{};
  SyntheticResult result = MustTrain();
  ExpectSameBits(result.weights, WeightsOnHost());
  EXPECT_GT(result.statistics[0].disk_written_bytes, 0u);
  run_.options.data_type = DataType::kFloat32;
  result = MustTrain();
  ExpectSameBits(result.weights, WeightsOnHost());
  EXPECT_EQ(result.statistics[0].state_disk_bytes, 0u);
}

TEST_F(EngineDiskTest, SeveralDisksAndThreads_GiveTheSameBits) {
  run_.world_size = 2;
  run_.options.update_threads = 3;
  run_.options.chunk_elements = 100'000;
  run_.options.state_disk.folders = {folder_ / "a", folder_ / "b", folder_ / "c"};
  const SyntheticResult result = MustTrain();
  ExpectSameBits(result.weights, TrainDensely(run_));
  EXPECT_THAT(result.statistics[0].state_disk, HasSubstr("3 disks"));
}

TEST_F(EngineDiskTest, EveryStage_GivesTheBitsOfStateOnTheHost) {
  run_.world_size = 2;
  run_.options.accumulate = 2;
  for (const Stage stage : {Stage::kState, Stage::kGradients}) {
    SCOPED_TRACE(static_cast<int>(stage));
    run_.options.stage = stage;
    ExpectSameBits(MustTrain().weights, WeightsOnHost());
  }
}

TEST_F(EngineDiskTest, FilesOfAllRanks_AreInTheLedgerWhileTheEnginesAreThere) {
  run_.world_size = 2;
  run_.options.state_disk.folders.push_back(folder_ / "b");
  uint64_t files = 0, in_ledger = 0;
  run_.between_steps = [&](Engine* engine, int rank, int) {
    if (rank > 0) return;
    files = 2 * engine->GetStatistics()->state_disk_bytes;
    in_ledger = DiskInLedger();
  };
  MustTrain();
  EXPECT_GT(files, 0u);
  EXPECT_EQ(in_ledger, files);
  EXPECT_EQ(DiskInLedger(), 0u);
}

TEST_F(EngineDiskTest, UpdatesInTheBackwardPass_GiveTheBitsOfDenseTraining) {
  run_.world_size = 2;
  run_.options.update = UpdateTime::kInBackward;
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

TEST_F(EngineDiskTest, StepThatOverflows_IsSkippedAlsoAsTheFirst) {
  run_.world_size = 2;
  run_.options.loss_scale = FixedLossScale(1);
  for (const int step : {0, 1}) {
    run_.overflow_step = step;
    ExpectSameBits(MustTrain().weights, TrainDensely(run_));
  }
}

TEST_F(EngineDiskTest, FrozenParameters_AreNotOnDisk) {
  const uint64_t all = MustTrain().statistics[0].disk_written_bytes;
  run_.model.parameters[2].trainable = false;
  const SyntheticResult result = MustTrain();
  ExpectSameBits(result.weights, TrainDensely(run_));
  EXPECT_LT(result.statistics[0].disk_written_bytes, all);
}

// With AdamW and bf16, 10 of an element's 12 bytes are on disk.
TEST_F(EngineDiskTest, BytesOnDisk_AreReadAndWrittenOnceAStepAndTakeNoHostMemory) {
  run_.options.chunk_elements = 8192;
  run_.steps = 4;
  const Statistics four = MustTrain().statistics[0];
  run_.steps = 6;
  const Statistics six = MustTrain().statistics[0];
  const uint64_t payload = four.model_state_bytes / 12 * 10;
  const auto is_a_little_more = [](uint64_t bytes, uint64_t than) {
    return bytes >= than && bytes < than + than / 4;  // headers and padding
  };
  EXPECT_TRUE(is_a_little_more((six.disk_written_bytes - four.disk_written_bytes) / 2, payload));
  EXPECT_TRUE(is_a_little_more((six.disk_read_bytes - four.disk_read_bytes) / 2, payload));
  EXPECT_GT(four.state_disk_bytes, payload);
  const absl::StatusOr<SyntheticResult> host = Train(OnHost());
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(host->statistics[0].model_state_bytes, four.model_state_bytes);
  EXPECT_LT(four.host_bytes, host->statistics[0].host_bytes - payload / 2);
  EXPECT_EQ(host->statistics[0].state_disk, "");
}

// Reads all state by rank and kind, before the first step and after each step.
TEST_F(EngineDiskTest, StateThatIsReadBetweenSteps_IsThatOfStateOnTheHost) {
  using Key = std::tuple<int, int, uint32_t, int>;
  std::map<Key, std::vector<float>> read;
  std::mutex mutex;
  const auto reads = [&](Engine* engine, int rank, int step) {
    for (uint32_t id = 0; id < run_.model.parameters.size(); ++id) {
      for (const StateKind kind : kStateKinds) {
        ASSERT_TRUE(engine->HasState(ParameterId{id}, kind));
        for (const ShardRange& range : engine->ShardOf(ParameterId{id})) {
          std::vector<float> values(range.elements);
          ASSERT_TRUE(engine->ReadShard(ParameterId{id}, kind, range.offset, values).ok());
          const std::lock_guard lock(mutex);
          std::vector<float>& all = read[{rank, step, id, static_cast<int>(kind)}];
          all.insert(all.end(), values.begin(), values.end());
        }
      }
    }
  };
  run_.world_size = 2;
  run_.between_steps = reads;
  MustTrain();
  const std::map<Key, std::vector<float>> on_disk = std::exchange(read, {});
  ASSERT_TRUE(Train(OnHost()).ok());
  EXPECT_FALSE(on_disk.empty());
  EXPECT_TRUE(on_disk == read);
}

// Writes some state between steps, in granules that share an extent with other state.
TEST_F(EngineDiskTest, StateThatIsWrittenBetweenSteps_IsUpdatedFromThere) {
  run_.world_size = 2;
  run_.between_steps = [&](Engine* engine, int, int step) {
    if (step != 2) return;
    for (const uint32_t id : {0u, 3u, 1u}) {
      for (const StateKind kind : kStateKinds) {
        for (const ShardRange& range : engine->ShardOf(ParameterId{id})) {
          std::vector<float> values(range.elements);
          ASSERT_TRUE(engine->ReadShard(ParameterId{id}, kind, range.offset, values).ok());
          for (float& value : values) value *= 0.5f;
          ASSERT_TRUE(engine->WriteShard(ParameterId{id}, kind, range.offset, values).ok());
        }
      }
    }
  };
  for (const UpdateTime update : {UpdateTime::kAfterStep, UpdateTime::kInBackward}) {
    run_.options.update = update;
    ExpectSameBits(MustTrain().weights, WeightsOnHost());
  }
}

TEST_F(EngineDiskTest, FilesOfASessionWithoutSuccessor_HaveNoNamesAtAnyTime) {
  std::vector<std::string> seen;
  run_.before_step = [&](int, int) {
    for (const std::string& file : Files()) seen.push_back(file);
    return absl::OkStatus();
  };
  MustTrain();
  EXPECT_THAT(seen, ::testing::IsEmpty());
  EXPECT_THAT(Files(), ::testing::IsEmpty());
}

TEST_F(EngineDiskTest, TwoRanksInOneFolder_HaveFilesOfTheirOwnUntilTheyEnd) {
  run_.run = "one";
  run_.world_size = 2;
  std::vector<std::string> seen;
  std::mutex mutex;
  run_.before_step = [&](int rank, int step) {
    const std::lock_guard lock(mutex);
    if (rank == 0 && step == 1) seen = Files();
    return absl::OkStatus();
  };
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_THAT(seen, Each(HasSubstr(folder_ / "a/geminid-synthetic-rank")));
  EXPECT_THAT(Files(), ::testing::IsEmpty());
}

// A write of the last step may extend the file again. Then the gap reads as zeros.
TEST_F(EngineDiskTest, FileTruncatedUnderTraining_EndsItWithOneErrorThatNamesIt) {
  run_.run = "two";
  run_.before_step = [&](int, int step) {
    if (step != 2) return absl::OkStatus();
    for (const std::string& file : Files()) std::filesystem::resize_file(file, 1 << 20);
    return absl::OkStatus();
  };
  const absl::Status status = Refused();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_ / "a/geminid-synthetic-rank0"));
}

TEST_F(EngineDiskTest, FileRemovedUnderTraining_ChangesNothing) {
  run_.run = "three";
  run_.before_step = [&](int, int step) {
    if (step != 2) return absl::OkStatus();
    for (const std::string& file : Files()) std::filesystem::remove(file);
    return absl::OkStatus();
  };
  ExpectSameBits(MustTrain().weights, TrainDensely(run_));
}

// Both ranks refuse the step that would exceed the endurance, and the engine goes on.
TEST_F(EngineDiskTest, EnduranceThatIsSpent_RefusesTheStepOnAllRanks) {
  run_.world_size = 2;
  run_.steps = 3;
  const uint64_t written = MustTrain().statistics[0].disk_written_bytes;
  run_.steps = 20;
  run_.options.state_disk.endurance_bytes = 2 * written;
  SyntheticResult none;
  for (const absl::Status& status : TrainStatuses(run_, &none)) {
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("endurance_bytes"), HasSubstr("nothing has changed")));
  }
}

// The updates of the last step may still be written when the next one asks.
TEST_F(EngineDiskTest, EnduranceForThreeSteps_IsEnoughForThreeAndAByteLessForTwo) {
  for (const UpdateTime update : {UpdateTime::kAfterStep, UpdateTime::kInBackward}) {
    SCOPED_TRACE(static_cast<int>(update));
    run_.options.update = update;
    run_.options.state_disk.endurance_bytes = 0;
    run_.steps = 3;
    const uint64_t written = MustTrain().statistics[0].disk_written_bytes;
    for (const int less : {0, 1}) {
      int steps = 0;
      SyntheticRun bounded = run_;
      bounded.steps = 20;
      bounded.options.state_disk.endurance_bytes = written - static_cast<uint64_t>(less);
      bounded.between_steps = [&](Engine*, int, int) { ++steps; };
      SyntheticResult none;
      EXPECT_TRUE(absl::IsResourceExhausted(TrainStatuses(bounded, &none)[0]));
      EXPECT_EQ(steps, 3 - less);
    }
  }
}

// The processes of one run: all except the last one leave their state to the next one.
class EngineDiskRunTest : public EngineDiskTest {
 protected:
  void SetUp() override {
    EngineDiskTest::SetUp();
    run_.run = "of several processes";
    run_.options.resume = true;
  }
  // Runs a process that ends before this step. Returns the bytes that it had written after the last
  // step.
  uint64_t WrittenUntil(int step) {
    SyntheticRun ends = run_;
    uint64_t written = 0;
    ends.before_step = [step](int, int now) {
      return now == step ? absl::AbortedError("ends here") : absl::OkStatus();
    };
    ends.between_steps = [&](Engine* engine, int, int) {
      written = engine->GetStatistics()->disk_written_bytes;
    };
    SyntheticResult none;
    EXPECT_TRUE(absl::IsAborted(TrainStatuses(ends, &none)[0]));
    return written;
  }
};

TEST_F(EngineDiskRunTest, FilesThatAreRetained_AreInTheLedgerOnceUntilTheRunEnds) {
  uint64_t files = 0;
  run_.between_steps = [&](Engine* engine, int, int) {
    files = engine->GetStatistics()->state_disk_bytes;
    EXPECT_EQ(DiskInLedger(), files);
  };
  WrittenUntil(2);
  const uint64_t retained = DiskInLedger();
  EXPECT_GT(retained, 0u);
  MustTrain();
  EXPECT_EQ(files, retained);
  EXPECT_EQ(DiskInLedger(), 0u);
}

// The first process's state is lost. The second has room in host memory, and the third has none.
TEST_F(EngineDiskRunTest, BytesWritten_AreCountedOverAProcessWithNothingOnDisk) {
  const uint64_t before = WrittenUntil(3);
  EXPECT_GT(before, 0u);
  for (const std::string& file : Files()) std::filesystem::remove(file);
  run_.options.state_placement = StatePlacement::kAuto;
  EXPECT_EQ(WrittenUntil(0), 0u);
  run_.options.state_placement = StatePlacement::kDisk;
  const uint64_t all = MustTrain().statistics[0].disk_written_bytes;
  run_.run = "another";
  EXPECT_GE(all, before + MustTrain().statistics[0].disk_written_bytes);
}

// A process without a disk folder is refused the state on disk. Its replacement has the folder.
TEST_F(EngineDiskRunTest, BytesWritten_AreCountedOverAProcessThatIsRefused) {
  const uint64_t before = WrittenUntil(3);
  const SyntheticRun on_disk = run_;
  run_ = OnHost();
  SyntheticResult none;
  const absl::Status refused = TrainStatuses(run_, &none)[0];
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  run_ = on_disk;
  EXPECT_GT(MustTrain().statistics[0].disk_written_bytes, before);
}

TEST_F(EngineDiskRunTest, SuccessorWithNothingOnDisk_SaysWhatWasWritten) {
  const uint64_t before = WrittenUntil(3);
  for (const std::string& file : Files()) std::filesystem::remove(file);
  run_.options.state_placement = StatePlacement::kAuto;
  const Statistics statistics = MustTrain().statistics[0];
  EXPECT_EQ(statistics.state_disk_bytes, 0u);
  EXPECT_GE(statistics.disk_written_bytes, before);
}

TEST_F(EngineDiskTest, LimitOfARanksFiles_IsRefusedWithTheNumbers) {
  run_.options.state_disk.limit_bytes = 4096;
  EXPECT_TRUE(absl::IsResourceExhausted(Refused()));
  EXPECT_THAT(std::string(Refused().message()), HasSubstr("the limit is 4.0 KiB"));
}

TEST_F(EngineDiskTest, WhatCannotBeOnDisk_IsRefusedWithWhatToDo) {
  run_.options.state_disk.folders = {folder_ / "missing"};
  EXPECT_TRUE(absl::IsNotFound(Refused())) << Refused();
  run_.options.state_disk.folders = {};
  EXPECT_TRUE(absl::IsInvalidArgument(Refused())) << Refused();
  run_.options.state_disk.folders = {folder_ / "a"};
  run_.options.placement = Placement::kDevice;
  EXPECT_TRUE(absl::IsInvalidArgument(Refused())) << Refused();
  run_.options.placement = Placement::kAuto;
  run_.options.state_placement = StatePlacement::kHost;
  EXPECT_THAT(std::string(Refused().message()), HasSubstr("StatePlacement::kDisk"));
}

// With StatePlacement::kAuto, and a daemon with too little host memory for all state.
class EngineDiskShareTest : public EngineDiskTest {
 protected:
  // `part` goes from 0, enough memory for all state on disk, to 1, enough for all in host memory.
  void HaveHostMemory(double part) {
    run_.options.state_placement = StatePlacement::kDisk;
    const Statistics on_disk = MustTrain().statistics[0];
    const absl::StatusOr<SyntheticResult> on_host = Train(OnHost());
    ASSERT_TRUE(on_host.ok()) << on_host.status();
    all_on_disk_ = on_disk.disk_written_bytes;
    const double least = static_cast<double>(on_disk.host_bytes);
    const double most = static_cast<double>(on_host->statistics[0].host_bytes);
    const double usable = least + part * (most - least);
    const double whole = usable * kRoomLeft / (kRoomLeft - 1) * run_.world_size;
    env_.Stop();
    ASSERT_TRUE(env_.Start({.host_memory = absl::StrCat(static_cast<uint64_t>(whole), "B")}).ok());
    run_.options.state_placement = StatePlacement::kAuto;
  }
  void HaveEnough() {
    env_.Stop();
    ASSERT_TRUE(env_.Start().ok());
  }

  uint64_t all_on_disk_ = 0;  // the bytes that such a run writes; files are larger by whole stripes
};

TEST_F(EngineDiskShareTest, WhatHostMemoryDoesNotHold_IsOnDiskWithTheBitsOfDenseTraining) {
  run_.options.chunk_elements = 8192;
  for (const int world_size : {1, 2}) {
    run_.world_size = world_size;
    // One arena takes all state that is not on disk, and the other one takes little.
    run_.arena_bytes = world_size == 1 ? kAmpleArena : kTightArena;
    const std::vector<std::vector<float>> expected = TrainDensely(run_);
    std::vector<uint64_t> on_disk;
    for (const double part : {0.0, 0.25, 0.5, 0.75}) {
      SCOPED_TRACE(::testing::Message() << "world " << world_size << ", part " << part);
      ASSERT_NO_FATAL_FAILURE(HaveHostMemory(part));
      const SyntheticResult result = MustTrain();
      ExpectSameBits(result.weights, expected);
      EXPECT_THAT(result.statistics[0].state_disk,
                  AllOf(HasSubstr("chunks on disk"), HasSubstr("; 1 disk")));
      on_disk.push_back(result.statistics[0].disk_written_bytes);
      EXPECT_LE(on_disk.back(), all_on_disk_);
      HaveEnough();
    }
    for (size_t i = 1; i < on_disk.size(); ++i) EXPECT_LT(on_disk[i], on_disk[i - 1]);
    EXPECT_GT(on_disk.back(), 0u);
  }
}

TEST_F(EngineDiskShareTest, WhereHostMemoryHoldsAll_NothingIsOnDisk) {
  run_.options.state_placement = StatePlacement::kAuto;
  const Statistics statistics = MustTrain().statistics[0];
  EXPECT_EQ(statistics.state_disk_bytes, 0u);
  EXPECT_THAT(statistics.state_disk, ::testing::StartsWith("none on disk"));
}

TEST_F(EngineDiskShareTest, EveryWayOfUpdating_GivesTheBitsOfStateOnTheHost) {
  run_.world_size = 2;
  run_.options.chunk_elements = 8192;
  run_.model = MixedModel(DataType::kFloat32);
  for (const auto& change : std::vector<std::function<void(Options*)>>{
           [](Options* options) { options->accumulate = 2; },
           [](Options* options) { options->update = UpdateTime::kInBackward; },
           [](Options* options) { options->placement = Placement::kCpu; },
           [](Options* options) { options->state_type = DataType::kBFloat16; },
           [](Options* options) { options->optimizer = LambOptions{}; },
           [](Options* options) { options->optimizer = CameOptions{}; }}) {
    const Options before = run_.options;
    change(&run_.options);
    ASSERT_NO_FATAL_FAILURE(HaveHostMemory(0.5));
    const SyntheticResult result = MustTrain();
    EXPECT_GT(result.statistics[0].disk_written_bytes, 0u);
    EXPECT_LT(result.statistics[0].disk_written_bytes, all_on_disk_);
    HaveEnough();
    ExpectSameBits(result.weights, WeightsOnHost());
    run_.options = before;
  }
}

// In such a step only a part of a chunk on disk is updated.
TEST_F(EngineDiskShareTest, ParametersWithoutAGradientInSomeSteps_GiveTheBitsOfStateOnTheHost) {
  run_.options.chunk_elements = 8192;
  for (Parameter& parameter : run_.model.parameters) parameter.update_without_gradient = false;
  run_.operators_at = [all = run_.model.operators](int step) {
    std::vector<std::vector<uint32_t>> used = all;
    if (step % 2 == 1) used.erase(used.begin() + 3, used.end() - 2);
    return used;
  };
  ASSERT_NO_FATAL_FAILURE(HaveHostMemory(0.5));
  const SyntheticResult result = MustTrain();
  EXPECT_GT(result.statistics[0].disk_written_bytes, 0u);
  HaveEnough();
  ExpectSameBits(result.weights, WeightsOnHost());
}

// Neither the disk nor the host has all state that is read and written.
TEST_F(EngineDiskShareTest, StateThatIsWrittenBetweenSteps_IsUpdatedFromThere) {
  run_.options.chunk_elements = 8192;
  run_.between_steps = [&](Engine* engine, int, int step) {
    if (step != 2) return;
    for (uint32_t id = 0; id < run_.model.parameters.size(); ++id) {
      for (const StateKind kind : kStateKinds) {
        ASSERT_TRUE(engine->HasState(ParameterId{id}, kind));
        for (const ShardRange& range : engine->ShardOf(ParameterId{id})) {
          std::vector<float> values(range.elements);
          ASSERT_TRUE(engine->ReadShard(ParameterId{id}, kind, range.offset, values).ok());
          for (float& value : values) value *= 0.5f;
          ASSERT_TRUE(engine->WriteShard(ParameterId{id}, kind, range.offset, values).ok());
        }
      }
    }
  };
  ASSERT_NO_FATAL_FAILURE(HaveHostMemory(0.5));
  const SyntheticResult result = MustTrain();
  HaveEnough();
  ExpectSameBits(result.weights, WeightsOnHost());
}

// The chunks on disk were chosen once for the run.
TEST_F(EngineDiskShareTest, SuccessorThatIsToldToHaveAllOnDisk_SaysThatItHasNot) {
  run_.options.chunk_elements = 8192;
  ASSERT_NO_FATAL_FAILURE(HaveHostMemory(0.5));
  run_.run = "mixture";
  run_.options.resume = true;
  run_.before_step = [](int, int step) {
    return step == 2 ? absl::AbortedError("ends here") : absl::OkStatus();
  };
  EXPECT_TRUE(absl::IsAborted(Refused()));
  run_.before_step = {};
  run_.options.state_placement = StatePlacement::kDisk;
  const SyntheticResult result = MustTrain();
  EXPECT_THAT(result.statistics[0].state_disk,
              AllOf(HasSubstr("chunks on disk, as the process before this one left it"),
                    HasSubstr("only a run that begins anew")));
  ExpectSameBits(result.weights, TrainDensely(run_));
}

TEST_F(EngineDiskTest, StateThatIsAllOnDisk_IsSaidToBe) {
  EXPECT_THAT(MustTrain().statistics[0].state_disk, ::testing::StartsWith("all on disk; 1 disk"));
}

TEST_F(EngineDiskShareTest, WhatCannotBeOnDisk_IsRefusedAlsoWhereAllFits) {
  run_.options.state_placement = StatePlacement::kAuto;
  run_.options.placement = Placement::kDevice;
  EXPECT_THAT(std::string(Refused().message()), HasSubstr("placement auto or cpu"));
  run_.options.placement = Placement::kAuto;
  run_.options.state_placement = StatePlacement::kStreamed;
  EXPECT_THAT(std::string(Refused().message()), HasSubstr("neither auto nor disk"));
}

}  // namespace
}  // namespace geminid::zero
