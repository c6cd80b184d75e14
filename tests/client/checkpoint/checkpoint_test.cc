// Saves and resumes with the real engine and daemon. Compares with runs that never stopped.
#include "geminid/checkpoint.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/files.h"
#include "client/checkpoint/checksums.h"
#include "client/checkpoint/folder.h"
#include "client/checkpoint/safetensors.h"
#include "client/checkpoint/tensor_file.h"
#include "proto/shm/crc32c.h"
#include "tests/base/temporary_folder.h"
#include "tests/client/checkpoint/checkpoint_fixture.h"

namespace {

// The number of checkpoints that fit on the disk, in this folder.
std::string limited_folder;
size_t room_for = 0;

}  // namespace

// Replaces the C library's function, which reserves space for the files of a checkpoint.
extern "C" int posix_fallocate(int fd, off_t offset, off_t bytes) {
  if (!limited_folder.empty()) {
    const auto finished = geminid::checkpoint::FinishedIn(limited_folder);
    if (finished.ok() && finished->size() >= room_for) return ENOSPC;
  }
  return ::ftruncate(fd, offset + bytes) == 0 ? 0 : errno;
}

namespace geminid::zero {
namespace {

namespace fs = std::filesystem;

constexpr char kFolderVariable[] = "GEMINID_TEST_CHECKPOINT_FOLDER";

TEST_F(CheckpointTest, ResumedRun_HasTheBitsOfTheUndisturbedOne) {
  const SyntheticResult whole = TrainAndSave({2});
  ExpectResumesTo(whole, Resuming(run_, folder_, 3));
  EXPECT_EQ(loaded_.progress.step, 3u);
  EXPECT_EQ(loaded_.run, kRun);
  EXPECT_EQ(loaded_.folder, folder_ + "/step-000000003");
}

TEST_F(CheckpointTest, Saving_ChangesNoBitOfTheRun) {
  const SyntheticResult saved = TrainAndSave({0, 1, 2, 3, 4, 5});
  const SyntheticResult unsaved = MustRun(Saving(run_, {.folder = folder_}, {}));
  ExpectSameBits(saved.weights, unsaved.weights);
}

// The step after the save begins at once, so it updates granules that the saver has not read yet.
TEST_F(CheckpointTest, EveryStepOfARunWithSlowDisk_IsSavedAsItWas) {
  const SyntheticResult whole = TrainAndSave({0, 1, 2, 3, 4});
  for (int step = 0; step < 5; ++step) {
    SyntheticRun run =
        Resuming(run_, folder_ + "/" + "step-00000000" + std::to_string(step + 1), step + 1);
    ExpectResumesTo(whole, run);
  }
}

TEST_F(CheckpointTest, OtherChunkSizeAndPlacement_HaveTheSameBits) {
  const SyntheticResult whole = TrainAndSave({2});
  SyntheticRun other = Resuming(run_, folder_, 3);
  other.options.chunk_elements = 65536;
  other.arena_bytes = kAmpleArena;
  other.options.placement = Placement::kDevice;
  ExpectResumesTo(whole, other);
}

TEST_F(CheckpointTest, Float32AndOptimizersWithOtherState_HaveTheSameBits) {
  for (const Optimizer& optimizer :
       {Optimizer(LambOptions{}), Optimizer(AdafactorOptions{}), Optimizer(SgdOptions{})}) {
    SCOPED_TRACE(optimizer.index());
    fs::remove_all(folder_);
    run_.options.optimizer = optimizer;
    run_.options.data_type = DataType::kFloat32;
    run_.arena_bytes = kAmpleArena;
    const SyntheticResult whole = TrainAndSave({2});
    ExpectResumesTo(whole, Resuming(run_, folder_, 3));
  }
}

TEST_F(CheckpointTest, ParametersOfBothTypes_HaveTheSameBits) {
  run_.model = MixedModel(DataType::kFloat32);
  run_.arena_bytes = kAmpleArena;
  const SyntheticResult whole = TrainAndSave({2});
  ExpectResumesTo(whole, Resuming(run_, folder_, 3));
}

// Checkpoints are fp32 in any case. Only frozen parameters are rounded to the type they are trained
// in.
TEST_F(CheckpointTest, ParametersOfAnotherTypeThanSaved_HaveTheSameValues) {
  const SyntheticResult saved = TrainAndSave({5});
  SyntheticRun other = Resuming(run_, folder_, 6);
  other.model = MixedModel(DataType::kFloat32);
  ExpectSameBits(MustRun(other).weights, saved.weights);
}

// Another number of ranks starts with the same bits.
TEST_F(CheckpointTest, OtherNumberOfRanks_StartsFromTheSameValues) {
  TrainAndSave({2});
  SyntheticRun same = Resuming(run_, folder_, 3);
  same.steps = 3;
  const SyntheticResult two = MustRun(same);
  for (int ranks : {1, 3, 4}) {
    same.world_size = ranks;
    ExpectSameBits(MustRun(same).weights, two.weights);
  }
}

TEST_F(CheckpointTest, ModelFile_HoldsTheValuesByName) {
  TrainAndSave({2});
  SyntheticRun still = Resuming(run_, folder_, 3);
  still.steps = 3;
  const SyntheticResult loaded = MustRun(still);
  const auto file =
      checkpoint::TensorFile::OpenToRead(folder_ + "/step-000000003/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  for (size_t p = 0; p < run_.model.parameters.size(); ++p) {
    const checkpoint::TensorEntry* tensor = file->header().Find(run_.model.parameters[p].name);
    ASSERT_NE(tensor, nullptr);
    std::vector<float> values(tensor->elements());
    ASSERT_TRUE(file->ReadFloats(*tensor, 0, values).ok());
    EXPECT_EQ(values, loaded.weights[p]) << tensor->name;
  }
}

TEST_F(CheckpointTest, Keep_LeavesTheNewest) {
  TrainAndSave({0, 1, 2, 3}, /*keep=*/2);
  EXPECT_FALSE(fs::exists(folder_ + "/step-000000002"));
  EXPECT_TRUE(fs::exists(folder_ + "/step-000000003"));
  EXPECT_TRUE(fs::exists(folder_ + "/step-000000004"));
}

TEST_F(CheckpointTest, AlteredByteOfAnyFile_IsNamed) {
  TrainAndSave({2});
  for (const auto& entry : fs::directory_iterator(folder_ + "/step-000000003")) {
    const std::string path = entry.path();
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto middle = static_cast<std::streamoff>(fs::file_size(path) / 2);
    file.seekg(middle);
    const int before = file.get();
    file.seekp(middle);
    file.put(static_cast<char>(before ^ 1));
    file.flush();
    const std::string error = LoadError();
    const std::string name = entry.path().filename();
    EXPECT_NE(error, "") << path;
    if (!name.starts_with("checksums")) {
      EXPECT_NE(error.find(name), std::string::npos) << error;
    }
    if (name.ends_with(".safetensors") && !name.starts_with("checksums")) {
      EXPECT_NE(error.find("tensor '"), std::string::npos) << error;
    }
    file.seekp(middle);
    file.put(static_cast<char>(before));
  }
  EXPECT_EQ(LoadError(), "");
}

TEST_F(CheckpointTest, AlteredByteOfAValue_IsRefusedByWhoWantsValuesAlone) {
  TrainAndSave({2});
  const std::string checkpoint = folder_ + "/step-000000003";
  EXPECT_EQ(ValuesError(), "");
  AlterAnElement(checkpoint + "/optimizer.safetensors");
  EXPECT_EQ(ValuesError(), "") << "nobody reads it";
  AlterAnElement(checkpoint + "/model.safetensors");
  EXPECT_THAT(ValuesError(), ::testing::HasSubstr("model.safetensors': tensor '"));
  EXPECT_THAT(ValuesError(), ::testing::HasSubstr("were altered since they were written"));
  // Without its checksums, a checkpoint is a plain folder of values.
  for (const char* name :
       {"checksums-00000-of-00002.safetensors", "checksums-00001-of-00002.safetensors"}) {
    EXPECT_NE(ValuesError(), "");
    fs::remove(checkpoint + "/" + name);
  }
  EXPECT_EQ(ValuesError(), "");
}

TEST_F(CheckpointTest, LoadedInPart_IsNotTrainedOnUntilAnotherLoads) {
  const SyntheticResult whole = TrainAndSave({1, 2});
  const std::string altered = folder_ + "/step-000000003";
  AlterAnElement(altered + "/optimizer.safetensors");
  SyntheticRun run = Resuming(run_, folder_ + "/step-000000002", 2);
  const auto load_other = run.prepare;
  run.prepare = [=, this](Engine* engine, collectives::Communicator* communicator, int rank) {
    EXPECT_EQ(
        checkpoint::Load(altered, engine, communicator, run_.model.parameters).status().code(),
        absl::StatusCode::kDataLoss);
    const absl::Status begun = engine->BeginMicroBatch();
    EXPECT_EQ(begun.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(begun.message(), ::testing::HasSubstr("loading '" + altered + "' failed"));
    return load_other(engine, communicator, rank);
  };
  ExpectResumesTo(whole, run);
}

// A checkpoint that cannot be opened changes nothing.
TEST_F(CheckpointTest, NotThere_LeavesTheValuesBefore) {
  SyntheticRun run = Saving(run_, {.folder = folder_}, {});
  const SyntheticResult whole = MustRun(run);
  const auto initialise = run.prepare;
  run.prepare = [=, this](Engine* engine, collectives::Communicator* communicator, int rank) {
    const absl::Status initialised = initialise(engine, communicator, rank);
    EXPECT_EQ(checkpoint::Load(temporary_ / "none", engine, communicator, run_.model.parameters)
                  .status()
                  .code(),
              absl::StatusCode::kNotFound);
    return initialised;
  };
  ExpectResumesTo(whole, run);
}

TEST_F(CheckpointTest, SavedAfterADivergence_LeaveTheLastHealthyOne) {
  diverges_at_ = 1;
  TrainAndSave({0, 1, 2, 3}, /*keep=*/2);
  EXPECT_THAT(Finished(),
              ::testing::ElementsAre("step-000000001", "step-000000003", "step-000000004"));
  EXPECT_EQ(*checkpoint::Newest(folder_), folder_ + "/step-000000001");
}

TEST_F(CheckpointTest, ThatTheSaverDoesNotAdopt_AreNotPruned) {
  TrainAndSave({3});
  MustRun(
      Saving(run_, {.folder = folder_, .keep = 1, .adopts = std::vector<std::string>()}, {0, 1}));
  EXPECT_THAT(Finished(), ::testing::ElementsAre("step-000000002", "step-000000004"));
  MustRun(Saving(
      run_, {.folder = folder_, .keep = 1, .adopts = std::vector<std::string>{"step-000000004"}},
      {0}));
  EXPECT_THAT(Finished(), ::testing::ElementsAre("step-000000001", "step-000000002"));
}

TEST_F(CheckpointTest, FoldersOfTheUserThatAreCalledLikeSteps_AreNeverRemoved) {
  for (const std::string name : {"step-000000001", "step-000000002"}) {
    fs::create_directories(folder_ + "/" + name);
    std::ofstream(folder_ + "/" + name + "/thesis") << "of the user";
  }
  TrainAndSave({0, 2}, /*keep=*/1);
  EXPECT_THAT(Finished(), ::testing::ElementsAre("step-000000002", "step-000000003"));
  EXPECT_TRUE(fs::exists(folder_ + "/step-000000001.kept/thesis"));
  EXPECT_TRUE(fs::exists(folder_ + "/step-000000002/thesis"));
}

TEST_F(CheckpointTest, CheckpointsOfAnotherRun_AreKeptWhereTheSaverDoesNotAdoptThem) {
  TrainAndSave({0});
  MustRun(Saving(run_, {.folder = folder_, .keep = 1, .adopts = std::vector<std::string>()}, {0}));
  EXPECT_THAT(Finished(), ::testing::ElementsAre("step-000000001"));
  EXPECT_TRUE(fs::exists(folder_ + "/step-000000001.kept/state.json"));
}

TEST_F(CheckpointTest, FullDisk_PrunesFirstWhatMayGo) {
  limited_folder = folder_;
  room_for = 2;
  TrainAndSave({0, 1, 2, 3}, /*keep=*/2);
  EXPECT_THAT(Finished(), ::testing::ElementsAre("step-000000003", "step-000000004"));
  // The last checkpoint must not be removed: the save fails, and the checkpoint stays.
  fs::remove_all(folder_);
  room_for = 1;
  MustRun(Saving(run_, {.folder = folder_, .keep = 1}, {0, 1}));
  EXPECT_TRUE(absl::IsResourceExhausted(first_error_)) << first_error_;
  EXPECT_THAT(Finished(), ::testing::ElementsAre("step-000000001"));
  limited_folder.clear();
}

TEST_F(CheckpointTest, FileCutShort_IsNamed) {
  TrainAndSave({2});
  const std::string path = folder_ + "/step-000000003/optimizer.safetensors";
  fs::resize_file(path, fs::file_size(path) - 1);
  EXPECT_NE(LoadError().find("optimizer.safetensors"), std::string::npos) << LoadError();
}

TEST_F(CheckpointTest, OtherModel_IsNamedWithBothShapes) {
  TrainAndSave({2});
  run_.model.parameters[0].shape[0] += 1;
  EXPECT_NE(LoadError().find("shape"), std::string::npos) << LoadError();
  run_.model.parameters[0].name = "another";
  EXPECT_NE(LoadError().find("no tensor 'another'"), std::string::npos) << LoadError();
}

// Momentum of SGD is no sum of squares, though Adagrad has one array of the same name.
TEST_F(CheckpointTest, OfAnotherOptimizerWithTheSameArrays_IsRefusedWithBothNames) {
  run_.options.optimizer = SgdOptions{.momentum = 0.9};
  TrainAndSave({2});
  run_.options.optimizer = AdagradOptions{};
  EXPECT_NE(LoadError().find("a different optimizer saved it: sgd; this run has "
                             "adagrad"),
            std::string::npos)
      << LoadError();
}

// Lion and Muon have some of AdamW's arrays. LAMB has the same arrays, and sums as well. Records of
// earlier versions do not name the optimizer.
TEST_F(CheckpointTest, OfAnotherOptimizerThatTheRecordDoesNotName_IsRefusedByItsArrays) {
  const auto forget_name = [this] {
    const std::string folder = *checkpoint::Newest(folder_);
    std::string text = *base::ReadFile(folder + "/state.json", 1 << 20);
    text.replace(text.find("\"optimizer\""), 2, "\"X");
    std::ofstream(folder + "/state.json") << text;
    const std::string list = folder + "/" + checkpoint::ChecksumsName(0, run_.world_size);
    checkpoint::CheckedFileRanges read = *checkpoint::ReadChecksums(list);
    for (checkpoint::CheckedRange& piece : read.pieces) {
      if (read.files[piece.file] == "state.json") {
        piece.crc32c = shm::Crc32c(text.data(), text.size());
      }
    }
    fs::remove(list);
    ASSERT_TRUE(checkpoint::WriteChecksums(list, read.files, read.pieces).ok());
  };
  run_.options.optimizer = LambOptions{};
  TrainAndSave({2});
  forget_name();
  run_.options.optimizer = AdamWOptions{};
  EXPECT_NE(LoadError().find("a different optimizer saved it"), std::string::npos) << LoadError();
  fs::remove_all(folder_);
  TrainAndSave({2});
  forget_name();
  for (const Optimizer& optimizer :
       {Optimizer(LionOptions{}), Optimizer(MuonOptions{}), Optimizer(SgdOptions{})}) {
    SCOPED_TRACE(Name(optimizer));
    run_.options.optimizer = optimizer;
    for (Parameter& parameter : run_.model.parameters) {
      parameter.orthogonal =
          std::holds_alternative<MuonOptions>(optimizer) && parameter.shape.size() == 2;
    }
    EXPECT_NE(LoadError().find("a different optimizer saved it"), std::string::npos) << LoadError();
  }
}

// The saver reads a step's state before the device writes the next version.
TEST_F(CheckpointTest, OfStateThatIsStreamed_IsAsItWasAfterItsStep) {
  run_.options.state_placement = StatePlacement::kStreamed;
  run_.arena_bytes = kAmpleArena;
  const SyntheticResult whole = TrainAndSave({0, 1, 2, 3, 4});
  for (int step = 0; step < 5; ++step) {
    ExpectResumesTo(
        whole, Resuming(run_, folder_ + "/step-00000000" + std::to_string(step + 1), step + 1));
  }
}

// The checkpoint's arrays are ignored, and the value is rounded to the type of the frozen
// parameter.
TEST_F(CheckpointTest, OfAParameterThatIsFrozenNow_IsLoaded) {
  constexpr size_t kFrozen = 2;
  const SyntheticResult saved = TrainAndSave({5});
  run_.model.parameters[kFrozen].trainable = false;
  SyntheticResult loaded = MustRun(Resuming(run_, folder_, 6));
  ASSERT_EQ(loaded.weights.size(), saved.weights.size());
  loaded.weights[kFrozen] = saved.weights[kFrozen];
  ExpectSameBits(loaded.weights, saved.weights);
}

TEST_F(CheckpointTest, FolderWithoutCheckpoint_SaysSo) {
  fs::create_directories(folder_);
  EXPECT_NE(LoadError().find("holds no checkpoint"), std::string::npos) << LoadError();
}

TEST_F(CheckpointTest, FolderThatCannotBeWritten_IsAnErrorAndTrainingGoesOn) {
  const SyntheticResult whole = MustRun(Saving(run_, {.folder = folder_}, {}));
  SyntheticRun run = Saving(run_, {.folder = folder_}, {2, 3});
  const auto between = run.between_steps;
  run.between_steps = [&](Engine* engine, int rank, int step) {
    if (step == 2 && rank == 0) {
      fs::remove_all(folder_);
      std::ofstream(folder_) << "a file where the folder was";
    }
    between(engine, rank, step);
  };
  ExpectSameBits(MustRun(run).weights, whole.weights);
  EXPECT_FALSE(first_error_.ok());
}

// The next test starts this one in a process of its own.
TEST_F(CheckpointTest, DISABLED_SavesEveryStepUntilKilled) {
  const char* const folder = ::getenv(kFolderVariable);
  ASSERT_NE(folder, nullptr);
  run_.world_size = 1;
  run_.steps = 100000;
  std::vector<int> all(static_cast<size_t>(run_.steps));
  std::iota(all.begin(), all.end(), 0);
  MustRun(Saving(run_, {.folder = folder, .keep = 2}, all));
}

pid_t StartSaving(const std::string& folder) {
  ::setenv(kFolderVariable, folder.c_str(), 1);
  const char* const arguments[] = {"test", "--gtest_also_run_disabled_tests",
                                   "--gtest_filter=*DISABLED_SavesEveryStepUntilKilled", nullptr};
  pid_t child = -1;
  EXPECT_EQ(::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr,
                          const_cast<char* const*>(arguments), environ),
            0);
  return child;
}

// The process is killed at a different point of the save each time.
TEST_F(CheckpointTest, KilledWhileSaving_TheLastFinishedOneLoads) {
  run_.world_size = 1;
  for (const char* until : {"state.json", "optimizer.safetensors",
                            "checksums-00000-of-00001.safetensors", "model.safetensors"}) {
    fs::remove_all(folder_);
    const pid_t child = StartSaving(folder_);
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    const auto seen = [&] {
      const absl::StatusOr<std::string> newest = checkpoint::Newest(folder_);
      if (!newest.ok()) return false;
      for (int step = 2; step < 1000; ++step) {
        const std::string path = absl::StrCat(
            folder_, "/", checkpoint::UnfinishedNameOfStep(static_cast<uint64_t>(step)));
        if (fs::exists(absl::StrCat(path, "/", until))) return true;
      }
      return false;
    };
    while (!seen() && absl::Now() < deadline) std::this_thread::yield();
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ASSERT_LT(absl::Now(), deadline);
    SyntheticRun resumed = Resuming(run_, folder_, 1);
    resumed.steps = 2;
    MustRun(resumed);
    EXPECT_GE(loaded_.progress.step, 1u);
  }
}

}  // namespace
}  // namespace geminid::zero
