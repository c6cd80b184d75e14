// The effect of a save that failed during training on later saves.
#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/checkpoint/folder.h"
#include "collectives/local/local_communicator.h"
#include "geminid/model_state.h"
#include "tests/base/temporary_folder.h"
#include "tools/trainer/checkpoints.h"

namespace geminid::trainer {
namespace {

using ::testing::ElementsAre;

// A model with one parameter of one element, on one rank. The snapshot of `lost_step` fails.
class OneValue final : public zero::ModelState {
 public:
  explicit OneValue(uint64_t lost_step) : lost_step_(lost_step) {}
  void Step() { ++step_; }

  absl::Status Initialize(const Fill& fill) override {
    return fill(zero::ParameterId{0}, {&value_, 1});
  }
  void Invalidate(std::string) override {}
  absl::StatusOr<std::vector<float>> ReadParameter(zero::ParameterId) override {
    return std::vector<float>{value_};
  }
  std::vector<zero::ShardRange> ShardOf(zero::ParameterId) const override {
    return {{.offset = 0, .elements = 1}};
  }
  bool HasState(zero::ParameterId, zero::StateKind kind) const override {
    return kind == zero::StateKind::kMaster;
  }
  zero::DataType state_type() const override { return zero::DataType::kFloat32; }
  const char* optimizer_name() const override { return "sgd"; }
  absl::Status ReadShard(zero::ParameterId, zero::StateKind, uint64_t,
                         std::span<float> values) override {
    values[0] = value_;
    return absl::OkStatus();
  }
  absl::Status WriteShard(zero::ParameterId, zero::StateKind, uint64_t,
                          std::span<const float> values) override {
    value_ = values[0];
    return absl::OkStatus();
  }
  absl::Status Restore(const zero::Progress& progress) override {
    step_ = progress.step;
    return absl::OkStatus();
  }
  absl::StatusOr<zero::Progress> GetProgress() override { return zero::Progress{.step = step_}; }
  absl::Status StartSnapshot(std::shared_ptr<zero::SnapshotSink> sink) override {
    snapshot_ = step_ == lost_step_ ? absl::ResourceExhaustedError("no space left on device")
                                    : sink->Write(zero::ParameterId{0}, zero::StateKind::kMaster, 0,
                                                  {&value_, 1});
    return absl::OkStatus();
  }
  absl::Status WaitSnapshot() override { return std::exchange(snapshot_, absl::OkStatus()); }
  std::optional<zero::Resumed> resumed() const override { return std::nullopt; }

 private:
  const uint64_t lost_step_;
  uint64_t step_ = 0;
  float value_ = 1;
  absl::Status snapshot_;
};

class FailedSaves : public testing::Test {
 protected:
  void SetUp() override {
    options_.save = folder_ / "run";
    options_.save_every = 1;
    absl::StatusOr<std::unique_ptr<Checkpoints>> made =
        Checkpoints::Create(options_, &state_, rank_.get(), {{.name = "w", .shape = {1}}}, {},
                            /*is_restart=*/false,
                            [&](const std::string& line) { said_.push_back(line); });
    ASSERT_TRUE(made.ok()) << made.status();
    checkpoints_ = *std::move(made);
  }

  absl::Status SaveNext(bool last) {
    state_.Step();
    return checkpoints_->AfterStep(++done_, last, {}, checkpoint::Health::kHealthy);
  }

  const base::TemporaryFolder folder_;
  TrainOptions options_;
  OneValue state_{/*lost_step=*/2};
  const std::unique_ptr<collectives::Communicator> rank_ =
      std::move(collectives::MakeLocalCommunicators(1)[0]);
  std::unique_ptr<Checkpoints> checkpoints_;
  std::vector<std::string> said_;
  uint64_t done_ = 0;
};

TEST_F(FailedSaves, SaveAfterOne_SaysItAndSaves) {
  for (const bool last : {false, false, true}) EXPECT_TRUE(SaveNext(last).ok());
  EXPECT_THAT(said_,
              ElementsAre("geminid-train: the checkpoint of step 2 could not be saved: --save " +
                          options_.save + ": no space left on device"));
  EXPECT_TRUE(checkpoints_->Finish().ok());
  EXPECT_THAT(*checkpoint::FinishedIn(options_.save),
              ElementsAre("step-000000001", "step-000000003"));
}

// The ranks that took over were asked to end before they trained.
TEST_F(FailedSaves, OfStateThatDivergedBeforeItWasHandedOver_SayThatItHas) {
  EXPECT_TRUE(SaveNext(/*last=*/false).ok());
  const auto take_over = [&]() -> absl::StatusOr<std::optional<RunPosition>> {
    return RunPosition{.progress = {.step = 3}, .run = {}, .health = checkpoint::Health::kDiverged};
  };
  EXPECT_TRUE(checkpoints_
                  ->Begin([](auto, auto) { return absl::OkStatus(); }, take_over,
                          [](auto, const auto&) { return true; })
                  .ok());
  for (int steps = 0; steps < 2; ++steps) state_.Step();
  EXPECT_TRUE(checkpoints_->AfterResume(3, /*last=*/true, {}).ok());
  EXPECT_TRUE(checkpoints_->Finish().ok());
  EXPECT_THAT(*checkpoint::FinishedIn(options_.save),
              ElementsAre("step-000000001", "step-000000003"));
  EXPECT_EQ(*checkpoint::Newest(options_.save), options_.save + "/step-000000001");
}

TEST_F(FailedSaves, LastOne_IsTheErrorOfTheRun) {
  for (const bool last : {false, true}) EXPECT_TRUE(SaveNext(last).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(checkpoints_->Finish().status()));
  EXPECT_THAT(*checkpoint::FinishedIn(options_.save), ElementsAre("step-000000001"));
}

}  // namespace
}  // namespace geminid::trainer
