// The effect of one rank's failure on a checkpoint of all ranks.
#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/checkpoint/folder.h"
#include "geminid/checkpoint.h"
#include "tests/base/temporary_folder.h"
#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

namespace fs = std::filesystem;
using checkpoint::Saver;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The failures of one rank, by the step that is saved. Unset: it succeeds.
struct Faults {
  std::function<absl::Status(uint64_t step)> progress{};
  std::function<absl::Status(uint64_t step)> start{};
  std::function<absl::Status(uint64_t step)> write{};
  std::function<absl::Status(uint64_t step)> restore{};
  uint64_t steps_behind = 0;
};

absl::Status FaultOf(const std::function<absl::Status(uint64_t)>& fault, uint64_t step) {
  return fault ? fault(step) : absl::OkStatus();
}

class FaultySink final : public SnapshotSink {
 public:
  FaultySink(std::shared_ptr<SnapshotSink> sink, absl::Status fault)
      : sink_(std::move(sink)), fault_(std::move(fault)) {}
  absl::Status Write(ParameterId id, StateKind kind, uint64_t offset,
                     std::span<const float> values) override {
    return fault_.ok() ? sink_->Write(id, kind, offset, values) : fault_;
  }

 private:
  const std::shared_ptr<SnapshotSink> sink_;
  const absl::Status fault_;
};

class FaultyState final : public ModelState {
 public:
  FaultyState(ModelState* state, Faults faults) : state_(state), faults_(std::move(faults)) {}

  absl::Status Initialize(const Fill& fill) override { return state_->Initialize(fill); }
  void Invalidate(std::string why) override { state_->Invalidate(std::move(why)); }
  absl::StatusOr<std::vector<float>> ReadParameter(ParameterId id) override {
    return state_->ReadParameter(id);
  }
  std::vector<ShardRange> ShardOf(ParameterId id) const override { return state_->ShardOf(id); }
  bool HasState(ParameterId id, StateKind kind) const override {
    return state_->HasState(id, kind);
  }
  DataType state_type() const override { return state_->state_type(); }
  const char* optimizer_name() const override { return state_->optimizer_name(); }
  absl::Status ReadShard(ParameterId id, StateKind kind, uint64_t offset,
                         std::span<float> values) override {
    return state_->ReadShard(id, kind, offset, values);
  }
  absl::Status WriteShard(ParameterId id, StateKind kind, uint64_t offset,
                          std::span<const float> values) override {
    return state_->WriteShard(id, kind, offset, values);
  }
  absl::Status Restore(const Progress& progress) override {
    const absl::Status fault = FaultOf(faults_.restore, progress.step);
    return fault.ok() ? state_->Restore(progress) : fault;
  }
  absl::StatusOr<Progress> GetProgress() override {
    absl::StatusOr<Progress> progress = state_->GetProgress();
    if (!progress.ok()) return progress;
    const absl::Status fault = FaultOf(faults_.progress, progress->step);
    if (!fault.ok()) return fault;
    if (progress->step > 0) progress->step -= faults_.steps_behind;
    return progress;
  }
  absl::Status StartSnapshot(std::shared_ptr<SnapshotSink> sink) override {
    const absl::StatusOr<Progress> progress = state_->GetProgress();
    if (!progress.ok()) return progress.status();
    const absl::Status fault = FaultOf(faults_.start, progress->step);
    if (!fault.ok()) return fault;
    return state_->StartSnapshot(
        std::make_shared<FaultySink>(std::move(sink), FaultOf(faults_.write, progress->step)));
  }
  absl::Status WaitSnapshot() override { return state_->WaitSnapshot(); }
  std::optional<Resumed> resumed() const override { return state_->resumed(); }

 private:
  ModelState* const state_;
  const Faults faults_;
};

std::function<absl::Status(uint64_t)> From(uint64_t first, absl::Status fault) {
  return [=](uint64_t step) { return step >= first ? fault : absl::OkStatus(); };
}
std::function<absl::Status(uint64_t)> At(uint64_t at, absl::Status fault) {
  return [=](uint64_t step) { return step == at ? fault : absl::OkStatus(); };
}

class CheckpointRanksTest : public EngineTest {
 protected:
  struct OfRank {
    std::unique_ptr<FaultyState> state;
    std::unique_ptr<Saver> saver;
    std::vector<absl::Status> said{};  // the results of each Save, and at last of Wait
  };

  void SetUp() override {
    EngineTest::SetUp();
    run_.world_size = 2;
    run_.steps = 4;
  }

  // Trains and saves after each of the first three steps, with `faults` on the second rank. The
  // weights are those of a run without saves.
  void TrainWith(const Faults& faults) {
    SyntheticRun run = run_;
    run.prepare = [&](Engine* engine, collectives::Communicator* ranks, int rank) {
      OfRank& mine = ranks_[static_cast<size_t>(rank)];
      mine.state = std::make_unique<FaultyState>(engine, rank == 1 ? faults : Faults{});
      absl::StatusOr<std::unique_ptr<Saver>> saver = Saver::Create(
          mine.state.get(), ranks, run_.model.parameters, {.folder = folder_, .keep = 1});
      if (!saver.ok()) return saver.status();
      mine.saver = *std::move(saver);
      return engine->Initialize(FillAlike);
    };
    run.between_steps = [&](Engine*, int rank, int step) {
      OfRank& mine = ranks_[static_cast<size_t>(rank)];
      if (step < 3) mine.said.push_back(mine.saver->Save({.data_position = 7}));
    };
    run.before_end = [&](int rank) {
      OfRank& mine = ranks_[static_cast<size_t>(rank)];
      mine.said.push_back(mine.saver->Wait().status());
      mine.saver.reset();
      return absl::OkStatus();
    };
    const absl::StatusOr<SyntheticResult> saved = Train(run);
    ASSERT_TRUE(saved.ok()) << saved.status();
    weights_ = saved->weights;
    run = run_;
    run.prepare = [](Engine* engine, collectives::Communicator*, int) {
      return engine->Initialize(FillAlike);
    };
    const absl::StatusOr<SyntheticResult> whole = Train(run);
    ASSERT_TRUE(whole.ok()) << whole.status();
    ExpectSameBits(weights_, whole->weights);
  }

  // Resumes from the newest checkpoint, and expects the weights of the first run.
  void ExpectResumes() {
    SyntheticRun run = run_;
    const absl::StatusOr<std::string> newest = checkpoint::Newest(folder_);
    ASSERT_TRUE(newest.ok()) << newest.status();
    run.first_step = newest->back() - '0';
    run.prepare = [&](Engine* engine, collectives::Communicator* ranks, int) {
      return checkpoint::Load(folder_, engine, ranks, run_.model.parameters).status();
    };
    const absl::StatusOr<SyntheticResult> resumed = Train(run);
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    ExpectSameBits(resumed->weights, weights_);
  }

  // The results of `call` on both ranks, by rank, with an engine that trains no step.
  std::vector<absl::Status> OnRanks(
      const std::function<absl::Status(Engine*, collectives::Communicator*, int)>& call) {
    SyntheticRun run = run_;
    run.steps = 0;
    std::vector<absl::Status> said(2);
    run.prepare = [&](Engine* engine, collectives::Communicator* ranks, int rank) {
      if (absl::Status filled = engine->Initialize(FillAlike); !filled.ok()) return filled;
      said[static_cast<size_t>(rank)] = call(engine, ranks, rank);
      return absl::OkStatus();
    };
    const absl::Status trained = Train(run).status();
    EXPECT_TRUE(trained.ok()) << trained;
    return said;
  }

  std::vector<std::string> Finished() const { return *checkpoint::FinishedIn(folder_); }
  const std::vector<absl::Status>& Said(size_t rank) const { return ranks_[rank].said; }

  static absl::Status FillAlike(ParameterId id, std::span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.01F * static_cast<float>((i * 7 + static_cast<uint32_t>(id)) % 23) - 0.1F;
    }
    return absl::OkStatus();
  }

  base::TemporaryFolder temporary_;
  const std::string folder_ = temporary_ / "run";
  std::vector<OfRank> ranks_ = std::vector<OfRank>(2);
  std::vector<std::vector<float>> weights_;
};

// The ranks' next save must not count as this one's second part.
TEST_F(CheckpointRanksTest, PartThatOneRankCannotStart_GivesNoNameAndPrunesNothing) {
  TrainWith({.start = From(2, absl::UnavailableError("no thread is left"))});
  EXPECT_THAT(Finished(), ElementsAre("step-000000001"));
  ExpectResumes();
  for (const size_t save : {1, 2}) {
    EXPECT_EQ(Said(1)[save], absl::UnavailableError("no thread is left"));
    EXPECT_EQ(Said(0)[save],
              absl::UnavailableError(
                  "rank 1 failed to start its part of the checkpoint: no thread is left"));
  }
  EXPECT_FALSE(fs::exists(folder_ + "/step-000000003.unfinished"));
}

TEST_F(CheckpointRanksTest, SaveAfterOneThatWasGivenUp_IsWhole) {
  TrainWith({.start = At(2, absl::UnavailableError("no thread is left"))});
  EXPECT_THAT(Finished(), ElementsAre("step-000000003"));
  ExpectResumes();
  for (const size_t rank : {0, 1}) {
    EXPECT_TRUE(absl::IsUnavailable(Said(rank)[1])) << Said(rank)[1];
    EXPECT_TRUE(Said(rank)[2].ok()) << Said(rank)[2];
    EXPECT_TRUE(Said(rank)[3].ok()) << Said(rank)[3];
  }
}

// The next call returns the error, because the disk was full while training went on.
TEST_F(CheckpointRanksTest, PartThatOneRankCannotWrite_GivesNoNameAndPrunesNothing) {
  TrainWith({.write = From(2, absl::ResourceExhaustedError("no space left on device"))});
  EXPECT_THAT(Finished(), ElementsAre("step-000000001"));
  ExpectResumes();
  EXPECT_EQ(Said(1)[2], absl::ResourceExhaustedError("no space left on device"));
  EXPECT_EQ(Said(0)[2],
            absl::ResourceExhaustedError(
                "rank 1 failed to write its part of the checkpoint: no space left on device"));
}

TEST_F(CheckpointRanksTest, RankWithoutProgress_IsNamedByTheOthers) {
  TrainWith({.progress = From(2, absl::DataLossError("the numbers cannot be read"))});
  EXPECT_THAT(Finished(), ElementsAre("step-000000001"));
  EXPECT_EQ(Said(0)[1], absl::DataLossError(
                            "rank 1 failed to begin the checkpoint: the numbers cannot be read"));
  EXPECT_EQ(Said(1)[1], absl::DataLossError("the numbers cannot be read"));
}

TEST_F(CheckpointRanksTest, RankThatIsAStepBehind_IsRefusedByAllWithBothSteps) {
  TrainWith({.steps_behind = 1});
  EXPECT_THAT(Finished(), ElementsAre());
  for (const size_t rank : {0, 1}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(Said(rank)[1])) << Said(rank)[1];
    EXPECT_THAT(std::string(Said(rank)[1].message()),
                AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr("checkpoint of step 2"),
                      HasSubstr("checkpoint of step 1")));
  }
}

// The commonest mistake of scripts that save on the first rank alone. Without the meeting the ranks
// wait for a rendezvous, and at a later save for each other's disks.
TEST_F(CheckpointRanksTest, SaveOnOneRankAlone_IsNamedOnBothAtOnce) {
  for (const bool is_first_save : {true, false}) {
    std::vector<absl::Status> said(2);
    SyntheticRun run = run_;
    run.steps = 0;
    run.prepare = [&](Engine* engine, collectives::Communicator* ranks, int rank) -> absl::Status {
      if (absl::Status filled = engine->Initialize(FillAlike); !filled.ok()) return filled;
      const auto made = [&] {
        return Saver::Create(engine, ranks, run_.model.parameters, {.folder = folder_});
      };
      absl::StatusOr<std::unique_ptr<Saver>> saver = absl::UnknownError("not made");
      if (!is_first_save) saver = made();
      absl::Status& mine = said[static_cast<size_t>(rank)];
      if (rank == 1) {
        const ParameterId first[] = {ParameterId{0}};
        mine = engine->Use(Pass::kEvaluate, first).status();
      } else if (is_first_save) {
        mine = made().status();
      } else {
        mine = (*saver)->Save({});
      }
      return mine;
    };
    const absl::Time began = absl::Now();
    EXPECT_FALSE(Train(run).ok());
    EXPECT_LT(absl::Now() - began, absl::Seconds(50));  // less than any timeout of ranks
    for (const absl::Status& status : said) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("ranks disagree"), HasSubstr("rank 0 called Barrier"),
                        HasSubstr("saving a checkpoint"), HasSubstr("rank 1 called AllGather")));
    }
  }
}

TEST_F(CheckpointRanksTest, RanksThatFindDifferentCheckpoints_LoadNone) {
  TrainWith({});
  fs::create_directories(temporary_ / "other");
  fs::copy(folder_ + "/step-000000003", temporary_ / "other/step-000000003",
           fs::copy_options::recursive);
  run_.steps = 2;
  fs::remove_all(folder_);
  TrainWith({});
  const std::vector<absl::Status> said =
      OnRanks([&](Engine* engine, collectives::Communicator* ranks, int rank) {
        return checkpoint::Load(rank == 0 ? folder_ : temporary_ / "other", engine, ranks,
                                run_.model.parameters)
            .status();
      });
  for (const absl::Status& status : said) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("open the checkpoint of step 2"),
                                                     HasSubstr("open the checkpoint of step 3")));
  }
}

TEST_F(CheckpointRanksTest, RankThatCannotGoOnFromACheckpoint_IsNamedByTheOthers) {
  TrainWith({});
  const std::vector<absl::Status> said =
      OnRanks([&](Engine* engine, collectives::Communicator* ranks, int rank) {
        FaultyState state(engine, {.restore = From(0, absl::AbortedError("not me"))});
        return checkpoint::Load(folder_, rank == 1 ? static_cast<ModelState*>(&state) : engine,
                                ranks, run_.model.parameters)
            .status();
      });
  EXPECT_EQ(said[0], absl::AbortedError("rank 1 failed to go on from the checkpoint: not me"));
  EXPECT_EQ(said[1], absl::AbortedError("not me"));
}

TEST_F(CheckpointRanksTest, ExportThatOneRankCannotAdjust_LeavesNoFolder) {
  const std::string folder = temporary_ / "exported";
  const std::vector<absl::Status> said =
      OnRanks([&](Engine* engine, collectives::Communicator* ranks, int rank) {
        checkpoint::ExportOptions options = {.folder = folder};
        options.adjust = [rank](ParameterId, std::vector<float>*) {
          return rank == 1 ? absl::OutOfRangeError("it cannot be merged") : absl::OkStatus();
        };
        return checkpoint::ExportValues(options, engine, ranks, run_.model.parameters);
      });
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_EQ(said[0], absl::OutOfRangeError("rank 1 failed to export: it cannot be merged"));
  EXPECT_EQ(said[1], absl::OutOfRangeError("it cannot be merged"));
}

// For example because a step has begun: the other ranks must not wait for this rank's values.
TEST_F(CheckpointRanksTest, ExportThatOneRankRefuses_IsRefusedByAllBeforeAnyWaits) {
  const std::string folder = temporary_ / "exported";
  const std::vector<absl::Status> said =
      OnRanks([&](Engine* engine, collectives::Communicator* ranks, int rank) {
        FaultyState state(engine, {.progress = From(0, absl::FailedPreconditionError("not now"))});
        return checkpoint::ExportValues({.folder = folder},
                                        rank == 1 ? static_cast<ModelState*>(&state) : engine,
                                        ranks, run_.model.parameters);
      });
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_EQ(said[0], absl::FailedPreconditionError("rank 1 failed to begin the export: not now"));
  EXPECT_EQ(said[1], absl::FailedPreconditionError("not now"));
}

}  // namespace
}  // namespace geminid::zero
