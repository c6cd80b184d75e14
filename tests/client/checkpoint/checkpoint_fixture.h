// Runs that are saved and resumed, with the real engine and daemon.
#ifndef GEMINID_TESTS_CLIENT_CHECKPOINT_CHECKPOINT_FIXTURE_H_
#define GEMINID_TESTS_CLIENT_CHECKPOINT_CHECKPOINT_FIXTURE_H_

#include <algorithm>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "client/checkpoint/folder.h"
#include "geminid/checkpoint.h"
#include "tests/base/temporary_folder.h"
#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {

inline constexpr checkpoint::RunState kRun = {.data_position = 12345, .random_state = {1, 2, 3, 4}};

class CheckpointTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    run_.world_size = 2;
    run_.steps = 6;
    run_.arena_bytes = kTightArena;
    run_.options.clip_norm = 1;
    run_.options.loss_scale = LossScalerOptions{.initial_scale = 1024, .growth_interval = 3};
  }

  // The run, saved after every step in `steps`. `first_error_` gets the first error of Save and
  // Wait.
  SyntheticRun Saving(SyntheticRun run, checkpoint::SaverOptions options, std::vector<int> steps) {
    const auto savers = std::make_shared<std::vector<std::unique_ptr<checkpoint::Saver>>>(
        static_cast<size_t>(run.world_size));
    const SyntheticModel model = run.model;
    const auto initialise = [](ParameterId id, std::span<float> values) {
      for (uint64_t i = 0; i < values.size(); ++i) {
        values[i] = 0.01F * static_cast<float>((i * 7 + static_cast<uint32_t>(id)) % 23) - 0.1F;
      }
      return absl::OkStatus();
    };
    run.prepare = [=](Engine* engine, collectives::Communicator* communicator, int rank) {
      absl::StatusOr<std::unique_ptr<checkpoint::Saver>> saver =
          checkpoint::Saver::Create(engine, communicator, model.parameters, options);
      if (!saver.ok()) return saver.status();
      (*savers)[static_cast<size_t>(rank)] = *std::move(saver);
      return engine->Initialize(initialise);
    };
    run.between_steps = [this, savers, steps](Engine*, int rank, int step) {
      if (std::find(steps.begin(), steps.end(), step) == steps.end()) return;
      const checkpoint::Health health =
          step < diverges_at_ ? checkpoint::Health::kHealthy : checkpoint::Health::kDiverged;
      Note((*savers)[static_cast<size_t>(rank)]->Save(kRun, health));
    };
    run.before_end = [this, savers](int rank) {
      Note((*savers)[static_cast<size_t>(rank)]->Wait().status());
      (*savers)[static_cast<size_t>(rank)].reset();
      return absl::OkStatus();
    };
    return run;
  }

  // The run, resumed from the newest checkpoint.
  SyntheticRun Resuming(SyntheticRun run, const std::string& folder, int first_step) {
    const SyntheticModel model = run.model;
    run.first_step = first_step;
    run.prepare = [=, this](Engine* engine, collectives::Communicator* communicator, int rank) {
      absl::StatusOr<checkpoint::Loaded> loaded =
          checkpoint::Load(folder, engine, communicator, model.parameters);
      if (!loaded.ok()) return loaded.status();
      if (rank == 0) loaded_ = *loaded;
      return absl::OkStatus();
    };
    return run;
  }

  void Note(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    first_error_.Update(status);
  }

  SyntheticResult MustRun(const SyntheticRun& run) {
    absl::StatusOr<SyntheticResult> result = Train(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : SyntheticResult{};
  }

  // Trains to the end and saves at `steps`. Returns the result of a run without saves.
  SyntheticResult TrainAndSave(std::vector<int> steps, uint64_t keep = 0) {
    SyntheticResult result =
        MustRun(Saving(run_, {.folder = folder_, .keep = keep}, std::move(steps)));
    EXPECT_TRUE(first_error_.ok()) << first_error_;
    return result;
  }

  void ExpectResumesTo(const SyntheticResult& whole, const SyntheticRun& run) {
    ExpectSameBits(MustRun(run).weights, whole.weights);
  }

  // The first error of a rank that loads. Ranks that wait for this rank have other errors.
  std::string ValuesError() {
    SyntheticRun run = run_;
    absl::Status first;
    run.prepare = [&](Engine* engine, collectives::Communicator*, int) {
      absl::Status status =
          checkpoint::LoadValues(folder_, engine, run_.model.parameters,
                                 [](const Parameter& parameter) { return parameter.name; });
      const std::lock_guard lock(mutex_);
      first.Update(status);
      return status;
    };
    const absl::Status trained = Train(run).status();
    return std::string((first.ok() ? trained : first).message());
  }

  // Alters an element of the last tensor.
  static void AlterAnElement(const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-9, std::ios::end);
    const int before = file.get();
    file.seekp(-9, std::ios::end);
    file.put(static_cast<char>(before ^ 1));
  }

  std::vector<std::string> Finished() const { return *checkpoint::FinishedIn(folder_); }

  std::string LoadError() {
    SyntheticRun run = Resuming(run_, folder_, 3);
    return std::string(Train(run).status().message());
  }

  base::TemporaryFolder temporary_;
  const std::string folder_ = temporary_ / "run";
  int diverges_at_ = 1000;
  std::mutex mutex_;
  absl::Status first_error_;
  checkpoint::Loaded loaded_;
};

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_CHECKPOINT_CHECKPOINT_FIXTURE_H_
