// Training and its state through the C interface.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "geminid/c_checkpoint.h"
#include "geminid/optimizer.h"
#include "tests/client/c_api/c_api_fixture.h"

namespace geminid::c_api {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainingTest : public CApiTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Connect());
    ASSERT_NO_FATAL_FAILURE(MakeEngine());
  }

  std::vector<float> Read(uint32_t parameter) {
    std::vector<float> values(kElements, -1);
    EXPECT_EQ(geminid_engine_read_parameter(engine_, parameter, values.data(), kElements, error_),
              GEMINID_OK)
        << Message();
    return values;
  }

  // The text that a function of the engine returns.
  std::string TextOf(geminid_code (*function)(geminid_engine*, char**, geminid_error*)) {
    char* json = nullptr;
    EXPECT_EQ(function(engine_, &json, error_), GEMINID_OK) << Message();
    std::string text = json == nullptr ? "" : json;
    geminid_free(json);
    return text;
  }
  std::string Statistics() { return TextOf(geminid_engine_statistics); }
  std::string Plan() { return TextOf(geminid_engine_plan); }

  // The daemon's socket, for other sessions.
  std::string Socket() {
    char* json = nullptr;
    EXPECT_EQ(geminid_session_describe(session_, &json, error_), GEMINID_OK) << Message();
    std::string socket = json == nullptr ? "" : json;
    geminid_free(json);
    socket = socket.substr(socket.find("\"socket\": \"") + 11);
    return socket.substr(0, socket.find('"'));
  }
};

TEST_F(TrainingTest, Descent_HalvesTheDistance) {
  for (int step = 0; step < 4; ++step) ASSERT_NO_FATAL_FAILURE(Descend());
  EXPECT_THAT(Read(kA), Each(1 - 1.0f / 16));
  EXPECT_THAT(Read(kB), Each(1 - 1.0f / 16));
}

TEST_F(TrainingTest, Step_SaysItsNumberAndNorm) {
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK);
  ASSERT_EQ(AddGradient(kA, 3), GEMINID_OK);
  ASSERT_EQ(AddGradient(kB, 4), GEMINID_OK);
  double norm = 0;
  ASSERT_EQ(geminid_engine_gradient_norm(engine_, &norm, error_), GEMINID_OK) << Message();
  EXPECT_DOUBLE_EQ(norm, 5 * std::sqrt(double{kElements}));
  geminid_step_result result;
  geminid_step_result_init(&result, sizeof result);
  ASSERT_EQ(Step(1, &result), GEMINID_OK) << Message();
  EXPECT_EQ(result.step, 1u);
  EXPECT_EQ(result.gradient_norm, norm);
  EXPECT_EQ(result.clip_coefficient, 1);
  EXPECT_EQ(result.overflow, 0);
  EXPECT_EQ(result.struct_size, sizeof result);
}

TEST_F(TrainingTest, GroupWithABeta_IsStepped_AndOneThatTheOptimizerLacksIsRefused) {
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK);
  geminid_group group;
  geminid_group_init(&group, sizeof group);
  group.learning_rate = 1;
  group.beta2 = 0.5;
  geminid_step_input input;
  geminid_step_input_init(&input, sizeof input);
  input.groups = &group;
  input.group_count = 1;
  EXPECT_EQ(geminid_engine_step(engine_, &input, nullptr, error_), GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("sgd has no beta2"));
  EXPECT_FALSE(IsFinal());
  group.beta2 = NAN;
  EXPECT_EQ(geminid_engine_step(engine_, &input, nullptr, error_), GEMINID_OK) << Message();
}

TEST_F(TrainingTest, GradientThatIsNotFinite_FailsWhereThatWasAskedFor) {
  geminid_engine_free(&engine_);
  geminid_engine_options options = EngineOptions(nullptr);
  options.not_finite = GEMINID_NOT_FINITE_FAIL;
  ASSERT_EQ(Create(options, Parameters()), GEMINID_OK) << Message();
  InitializeWith(1);
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK);
  ASSERT_EQ(AddGradient(kB, NAN), GEMINID_OK);
  EXPECT_EQ(Step(1), GEMINID_FAILED_PRECONDITION);
  EXPECT_THAT(Message(), HasSubstr("not finite"));
  EXPECT_FALSE(IsFinal());
  ASSERT_EQ(geminid_engine_cancel_micro_batch(engine_, error_), GEMINID_OK) << Message();
  EXPECT_THAT(Read(kB), Each(1.0f));
}

TEST_F(TrainingTest, GradientRead_IsWhatWasAdded_AndCanBeChanged) {
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK);
  ASSERT_EQ(AddGradient(kA, 3), GEMINID_OK);
  ASSERT_EQ(AddGradient(kB, 4), GEMINID_OK);
  double norm = 0;
  ASSERT_EQ(geminid_engine_gradient_norm(engine_, &norm, error_), GEMINID_OK);
  std::vector<float> values(kElements);
  ASSERT_EQ(geminid_engine_read_gradient(engine_, kA, 0, values.data(), kElements, error_),
            GEMINID_OK)
      << Message();
  EXPECT_THAT(values, Each(3.0f));
  values.assign(kElements, 8.0f);
  ASSERT_EQ(geminid_engine_write_gradient(engine_, kA, 0, values.data(), kElements, error_),
            GEMINID_OK)
      << Message();
  ASSERT_EQ(Step(0.25), GEMINID_OK) << Message();
  EXPECT_THAT(Read(kA), Each(-2.0f));
  EXPECT_THAT(Read(kB), Each(-1.0f));
}

TEST_F(TrainingTest, MicroBatchCancelled_LeavesNoGradient) {
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK);
  ASSERT_EQ(AddGradient(kA, 100), GEMINID_OK);
  ASSERT_EQ(geminid_engine_cancel_micro_batch(engine_, error_), GEMINID_OK) << Message();
  ASSERT_NO_FATAL_FAILURE(Descend());
  EXPECT_THAT(Read(kA), Each(0.5f));
}

TEST_F(TrainingTest, ScaledGradients_StepByWhatTheyWere) {
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK);
  ASSERT_EQ(AddGradient(kA, 3 * 512), GEMINID_OK);
  ASSERT_EQ(AddGradient(kB, 4 * 512), GEMINID_OK);
  geminid_step_input input;
  geminid_step_input_init(&input, sizeof input);
  input.learning_rate = 1;
  input.gradient_scale = 512;
  geminid_step_result result;
  geminid_step_result_init(&result, sizeof result);
  ASSERT_EQ(geminid_engine_step(engine_, &input, &result, error_), GEMINID_OK) << Message();
  EXPECT_DOUBLE_EQ(result.gradient_norm, 5 * std::sqrt(double{kElements}));
  EXPECT_EQ(result.loss_scale, 512);
  EXPECT_THAT(Read(kA), Each(-3.0f));
}

TEST_F(TrainingTest, GroupsOfAStep_HaveTheirOwnRates) {
  geminid_engine_free(&engine_);
  geminid_optimizer sgd;
  geminid_optimizer_init(&sgd, sizeof sgd, GEMINID_SGD);
  std::vector<geminid_parameter> parameters = Parameters();
  parameters[kB].group = 1;
  ASSERT_EQ(Create(EngineOptions(&sgd), parameters), GEMINID_OK) << Message();
  ASSERT_NO_FATAL_FAILURE(InitializeWith(0));
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK);
  ASSERT_EQ(AddGradient(kA, -1), GEMINID_OK);
  ASSERT_EQ(AddGradient(kB, -1), GEMINID_OK);
  geminid_group groups[2];
  for (geminid_group& group : groups) geminid_group_init(&group, sizeof group);
  groups[0].learning_rate = 0.25;
  groups[1].learning_rate = 2;
  geminid_step_input input;
  geminid_step_input_init(&input, sizeof input);
  input.groups = groups;
  input.group_count = 2;
  ASSERT_EQ(geminid_engine_step(engine_, &input, nullptr, error_), GEMINID_OK) << Message();
  EXPECT_THAT(Read(kA), Each(0.25f));
  EXPECT_THAT(Read(kB), Each(2.0f));
}

TEST_F(TrainingTest, GroupOfAStep_HasItsOwnBetas) {
  geminid_engine_free(&engine_);
  geminid_optimizer sgd;
  geminid_optimizer_init(&sgd, sizeof sgd, GEMINID_SGD);
  sgd.momentum = 0.5;
  ASSERT_EQ(Create(EngineOptions(&sgd), Parameters()), GEMINID_OK) << Message();
  ASSERT_NO_FATAL_FAILURE(InitializeWith(0));
  geminid_group group;
  geminid_group_init(&group, sizeof group);
  group.learning_rate = 1;
  group.beta1 = 0.25;  // SGD's momentum
  geminid_step_input input;
  geminid_step_input_init(&input, sizeof input);
  input.groups = &group;
  input.group_count = 1;
  for (int step = 0; step < 2; ++step) {
    ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK);
    ASSERT_EQ(AddGradient(kA, 1), GEMINID_OK);
    ASSERT_EQ(AddGradient(kB, 1), GEMINID_OK);
    ASSERT_EQ(geminid_engine_step(engine_, &input, nullptr, error_), GEMINID_OK) << Message();
  }
  EXPECT_THAT(Read(kA), Each(-2.25f)) << "the second step is 1 and a quarter of the first";
}

TEST_F(TrainingTest, GradientThatIsNotFinite_IsHandledAsAsked) {
  geminid_engine_free(&engine_);
  geminid_optimizer sgd;
  geminid_optimizer_init(&sgd, sizeof sgd, GEMINID_SGD);
  geminid_engine_options options = EngineOptions(&sgd);
  options.not_finite = GEMINID_NOT_FINITE_FAIL;
  ASSERT_EQ(Create(options, Parameters()), GEMINID_OK) << Message();
  ASSERT_NO_FATAL_FAILURE(InitializeWith(0));
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK);
  ASSERT_EQ(AddGradient(kA, NAN), GEMINID_OK);
  EXPECT_EQ(Step(1), GEMINID_FAILED_PRECONDITION);
  EXPECT_NE(geminid_error_is_final(error_), 1);
  ASSERT_EQ(geminid_engine_cancel_micro_batch(engine_, error_), GEMINID_OK) << Message();
  ASSERT_NO_FATAL_FAILURE(Descend());
}

TEST_F(TrainingTest, FillThatGivesUp_CancelsAndMayBeCalledAgain) {
  const auto refuse = [](void*, uint32_t parameter, uint64_t, float*, uint64_t) {
    return parameter == kB ? 7 : 0;
  };
  EXPECT_EQ(geminid_engine_initialize(engine_, refuse, nullptr, error_), GEMINID_CANCELLED);
  EXPECT_THAT(Message(), HasSubstr("fill returned 7 for parameter 1 from element 0"));
  EXPECT_FALSE(IsFinal());
  ASSERT_NO_FATAL_FAILURE(InitializeWith(3));
  EXPECT_THAT(Read(kB), Each(3.0f));
}

TEST_F(TrainingTest, FillThatThrows_LeavesNoValuesToTrain) {
  const auto thrower = [](void*, uint32_t, uint64_t, float*, uint64_t) -> int {
    throw std::runtime_error("no such file");
  };
  EXPECT_EQ(geminid_engine_initialize(engine_, thrower, nullptr, error_), GEMINID_CANCELLED);
  EXPECT_THAT(Message(), HasSubstr("threw an exception: no such file"));
  EXPECT_FALSE(IsFinal());
  EXPECT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_FAILED_PRECONDITION);
  ASSERT_NO_FATAL_FAILURE(InitializeWith(0));
  ASSERT_NO_FATAL_FAILURE(Descend());
}

TEST_F(TrainingTest, Shard_IsAllOfAParameterForOneRank) {
  size_t count = 0;
  ASSERT_EQ(geminid_engine_shard(engine_, kA, nullptr, 0, &count, error_), GEMINID_OK);
  std::vector<geminid_range> ranges(count);
  ASSERT_EQ(geminid_engine_shard(engine_, kA, ranges.data(), count, &count, error_), GEMINID_OK);
  uint64_t elements = 0;
  for (const geminid_range& range : ranges) elements += range.elements;
  EXPECT_EQ(elements, kElements);

  std::vector<float> written(kElements);
  for (size_t i = 0; i < written.size(); ++i) written[i] = static_cast<float>(i);
  ASSERT_EQ(
      geminid_engine_write_shard(engine_, kA, GEMINID_VALUE, 0, written.data(), kElements, error_),
      GEMINID_OK)
      << Message();
  std::vector<float> read(4);
  ASSERT_EQ(geminid_engine_read_shard(engine_, kA, GEMINID_VALUE, 10, read.data(), 4, error_),
            GEMINID_OK)
      << Message();
  EXPECT_EQ(read, (std::vector<float>{10, 11, 12, 13}));
}

TEST_F(TrainingTest, HasState_IsWhatTheOptimizerKeeps) {
  int has = -1;
  ASSERT_EQ(geminid_engine_has_state(engine_, kA, GEMINID_VALUE, &has, error_), GEMINID_OK);
  EXPECT_EQ(has, 1);
  ASSERT_EQ(geminid_engine_has_state(engine_, kA, GEMINID_EXP_AVG, &has, error_), GEMINID_OK);
  EXPECT_EQ(has, 0) << "descent without momentum";
}

TEST_F(TrainingTest, StateInBFloat16_IsReadAsSuchAndOlderHeadersHaveItInFp32) {
  geminid_optimizer adamw;
  geminid_optimizer_init(&adamw, sizeof adamw, GEMINID_ADAMW);
  for (const bool older : {false, true}) {
    geminid_engine_free(&engine_);
    geminid_engine_options options = EngineOptions(&adamw);
    EXPECT_EQ(options.state_type, GEMINID_FLOAT32);
    options.state_type = GEMINID_BFLOAT16;
    if (older) options.struct_size = offsetof(geminid_engine_options, state_type);
    ASSERT_EQ(Create(options, Parameters()), GEMINID_OK) << Message();
    ASSERT_NO_FATAL_FAILURE(InitializeWith(0));
    const float written = 1.0F + 1.0F / 1024;  // between two values of bf16
    ASSERT_EQ(geminid_engine_write_shard(engine_, kA, GEMINID_EXP_AVG, 0, &written, 1, error_),
              GEMINID_OK)
        << Message();
    float read = 0;
    ASSERT_EQ(geminid_engine_read_shard(engine_, kA, GEMINID_EXP_AVG, 0, &read, 1, error_),
              GEMINID_OK)
        << Message();
    EXPECT_EQ(read, older ? written : 1.0F);
  }
}

TEST_F(TrainingTest, CheckpointLoaded_GoesOnWhereItWasSaved) {
  for (int step = 0; step < 2; ++step) ASSERT_NO_FATAL_FAILURE(Descend());
  const std::string folder = ::testing::TempDir() + "geminid_c_api_" + std::to_string(getpid());
  char* path = nullptr;
  ASSERT_EQ(geminid_engine_save(engine_, folder.c_str(), 1, 42, &path, error_), GEMINID_OK)
      << Message();
  EXPECT_THAT(path, HasSubstr("step-000000002"));
  geminid_free(path);

  geminid_engine_free(&engine_);
  ASSERT_NO_FATAL_FAILURE(MakeEngine());
  uint64_t position = 0;
  EXPECT_EQ(geminid_engine_load(engine_, folder.c_str(), &position, error_), GEMINID_OK)
      << Message();
  std::filesystem::remove_all(folder);
  EXPECT_EQ(position, 42u);
  geminid_progress progress;
  geminid_progress_init(&progress, sizeof progress);
  ASSERT_EQ(geminid_engine_get_progress(engine_, &progress, error_), GEMINID_OK) << Message();
  EXPECT_EQ(progress.step, 2u);
  EXPECT_EQ(progress.tensor_state_bytes, 0u);
  ASSERT_NO_FATAL_FAILURE(Descend());
  EXPECT_THAT(Read(kA), Each(1 - 1.0f / 8));
}

class SaveTest : public TrainingTest {
 protected:
  ~SaveTest() override { std::filesystem::remove_all(folder_); }

  geminid_save_options Options() const {
    geminid_save_options options;
    geminid_save_options_init(&options, sizeof options);
    return options;
  }
  // Trains a step and saves it.
  void Save(const geminid_save_options& options) {
    ASSERT_NO_FATAL_FAILURE(Descend());
    ASSERT_EQ(
        geminid_engine_save_with(engine_, folder_.c_str(), &options, /*path=*/nullptr, error_),
        GEMINID_OK)
        << Message();
  }
  bool Has(const std::string& name) const { return std::filesystem::exists(folder_ + "/" + name); }

  const std::string folder_ =
      ::testing::TempDir() + "geminid_c_api_save_" + std::to_string(getpid());
};

// Without its health, the checkpoints of a diverged run would displace the last good one.
TEST_F(SaveTest, DivergedCheckpoints_LeaveTheNewestHealthyOne) {
  geminid_save_options options = Options();
  options.keep = 1;
  ASSERT_NO_FATAL_FAILURE(Save(options));
  options.health = GEMINID_DIVERGED;
  for (int step = 2; step <= 3; ++step) ASSERT_NO_FATAL_FAILURE(Save(options));
  EXPECT_TRUE(Has("step-000000001"));
  EXPECT_FALSE(Has("step-000000002"));
  EXPECT_TRUE(Has("step-000000003"));
}

TEST_F(SaveTest, CheckpointsThatAreNotAdopted_Stay) {
  geminid_save_options options = Options();
  options.keep = 1;
  options.has_adopts = 1;  // and none is named
  for (int step = 1; step <= 2; ++step) ASSERT_NO_FATAL_FAILURE(Save(options));
  EXPECT_TRUE(Has("step-000000001"));
  const char* const own[] = {"step-000000002"};
  options.adopts = own;
  options.adopt_count = 1;
  ASSERT_NO_FATAL_FAILURE(Save(options));
  EXPECT_TRUE(Has("step-000000001"));
  EXPECT_FALSE(Has("step-000000002"));
  EXPECT_TRUE(Has("step-000000003"));
}

TEST_F(SaveTest, RunState_IsLoadedAsItWasSaved) {
  geminid_save_options options = Options();
  options.data_position = 42;
  for (uint64_t i = 0; i < 4; ++i) options.random_state[i] = ~uint64_t{0} - i;
  ASSERT_NO_FATAL_FAILURE(Save(options));
  geminid_engine_free(&engine_);
  ASSERT_NO_FATAL_FAILURE(MakeEngine());
  geminid_run_state run;
  geminid_run_state_init(&run, sizeof run);
  ASSERT_EQ(geminid_engine_load_run(engine_, folder_.c_str(), &run, error_), GEMINID_OK)
      << Message();
  EXPECT_EQ(run.data_position, 42u);
  EXPECT_THAT(run.random_state, ::testing::ElementsAreArray(options.random_state));
}

TEST_F(SaveTest, OptionsThatMeanNothing_AreRefusedByName) {
  geminid_save_options options = Options();
  options.health = 2;
  EXPECT_EQ(geminid_engine_save_with(engine_, folder_.c_str(), &options, nullptr, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("health 2 is none of geminid_healths"));
  options = Options();
  options.has_adopts = 1;
  options.adopt_count = 1;
  EXPECT_EQ(geminid_engine_save_with(engine_, folder_.c_str(), &options, nullptr, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("adopts"));
  EXPECT_EQ(geminid_engine_save_with(engine_, folder_.c_str(), nullptr, nullptr, error_),
            GEMINID_INVALID_ARGUMENT);
}

TEST_F(SaveTest, Files_AreBesideTheWeightsAndCoveredByChecksums) {
  const char* const names[] = {"torch.pt", "empty"};
  const std::string contents("a\0b\n", 4);
  const void* const places[] = {contents.data(), nullptr};
  const size_t sizes[] = {contents.size(), 0};
  geminid_save_options options = Options();
  options.file_names = names;
  options.file_contents = places;
  options.file_bytes = sizes;
  options.file_count = 2;
  ASSERT_NO_FATAL_FAILURE(Save(options));
  const std::string file = folder_ + "/step-000000001/torch.pt";
  std::ifstream saved(file, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(saved), {}), contents);
  EXPECT_TRUE(Has("step-000000001/empty"));
  std::ofstream(file, std::ios::binary) << std::string("a\0c\n", 4);
  geminid_engine_free(&engine_);
  ASSERT_NO_FATAL_FAILURE(MakeEngine());
  EXPECT_EQ(geminid_engine_load(engine_, folder_.c_str(), nullptr, error_), GEMINID_DATA_LOSS);
  EXPECT_THAT(Message(), HasSubstr("torch.pt"));
}

// A program that was built with the header of a version without files.
TEST_F(SaveTest, OptionsOfAnOlderHeader_SaveWithoutFiles) {
  geminid_save_options options = Options();
  options.struct_size = offsetof(geminid_save_options, file_names);
  options.file_count = 7;  // whatever lies behind the older struct
  ASSERT_NO_FATAL_FAILURE(Save(options));
  EXPECT_TRUE(Has("step-000000001"));
}

TEST_F(SaveTest, FileThatWouldLeaveTheCheckpoint_IsRefusedByName) {
  geminid_save_options options = Options();
  const void* const contents[] = {"x", "x"};
  const size_t sizes[] = {1, 1};
  const auto refused = [&](std::vector<const char*> names) {
    options.file_names = names.data();
    options.file_contents = contents;
    options.file_bytes = sizes;
    options.file_count = names.size();
    EXPECT_EQ(geminid_engine_save_with(engine_, folder_.c_str(), &options, nullptr, error_),
              GEMINID_INVALID_ARGUMENT);
    EXPECT_THAT(Message(), HasSubstr("file_names has '"));
  };
  for (const char* name : {"", "..", "../x", "a/b", "a\nb"}) refused({name});
  refused({"twice", "twice"});
  EXPECT_FALSE(Has("step-000000000"));
}

TEST_F(SaveTest, NewestCheckpoint_IsTheOneThatIsLoaded) {
  char* path = nullptr;
  EXPECT_EQ(geminid_newest_checkpoint(folder_.c_str(), &path, error_), GEMINID_NOT_FOUND);
  geminid_save_options options = Options();
  ASSERT_NO_FATAL_FAILURE(Save(options));
  options.health = GEMINID_DIVERGED;
  ASSERT_NO_FATAL_FAILURE(Save(options));
  ASSERT_EQ(geminid_newest_checkpoint(folder_.c_str(), &path, error_), GEMINID_OK) << Message();
  EXPECT_EQ(std::string(path), folder_ + "/step-000000001");
  geminid_free(path);
}

// A mistyped folder costs nothing of what was trained.
TEST_F(TrainingTest, CheckpointOfAnotherModel_IsRefusedAndChangesNothing) {
  const std::string folder = ::testing::TempDir() + "geminid_c_api_" + std::to_string(getpid());
  ASSERT_NO_FATAL_FAILURE(Descend());
  ASSERT_EQ(geminid_engine_save(engine_, folder.c_str(), 1, 0, nullptr, error_), GEMINID_OK)
      << Message();
  geminid_engine_free(&engine_);
  std::vector<geminid_parameter> fewer = Parameters();
  fewer.pop_back();
  geminid_optimizer sgd;
  geminid_optimizer_init(&sgd, sizeof sgd, GEMINID_SGD);
  ASSERT_EQ(Create(EngineOptions(&sgd), fewer), GEMINID_OK) << Message();
  ASSERT_NO_FATAL_FAILURE(InitializeWith(3));
  uint64_t position = 0;
  EXPECT_EQ(geminid_engine_load(engine_, folder.c_str(), &position, error_),
            GEMINID_FAILED_PRECONDITION);
  EXPECT_THAT(Message(), HasSubstr("has the parameter 'b', which the model does not have"));
  std::filesystem::remove_all(folder);
  EXPECT_THAT(Read(kA), Each(3));
  EXPECT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK) << Message();
}

TEST_F(TrainingTest, ProgressWhoseTensorStateDidNotFit_IsNotRestored) {
  geminid_progress progress;
  geminid_progress_init(&progress, sizeof progress);
  char state[8] = {};
  progress.tensor_state = state;
  progress.tensor_state_capacity = sizeof state;
  progress.tensor_state_bytes = 100;
  EXPECT_EQ(geminid_engine_restore(engine_, &progress, error_), GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("tensor_state has 8 of the 100 bytes"));
}

TEST_F(TrainingTest, StreamOfCuda_IsRefusedOnAHostDevice) {
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK) << Message();
  constexpr uint64_t kLegacyStream = 1;
  uint64_t operation = 0;
  EXPECT_EQ(geminid_engine_use(engine_, GEMINID_FORWARD, &kA, 1, kLegacyStream, &operation, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("stream 1 is not a stream of a host device"));
}

TEST_F(TrainingTest, ProgressRestored_IsThatOfTheStep) {
  geminid_progress progress;
  geminid_progress_init(&progress, sizeof progress);
  progress.step = 7;
  progress.updates = 6;
  ASSERT_EQ(geminid_engine_restore(engine_, &progress, error_), GEMINID_OK) << Message();
  geminid_step_result result;
  geminid_step_result_init(&result, sizeof result);
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK);
  ASSERT_EQ(Step(0, &result), GEMINID_OK) << Message();
  EXPECT_EQ(result.step, 8u);
}

TEST_F(TrainingTest, Workspace_IsInTheArenaUntilItIsReleased) {
  uint64_t block = 0;
  void* address = nullptr;
  ASSERT_EQ(geminid_engine_allocate(engine_, 4096, &block, &address, error_), GEMINID_OK)
      << Message();
  std::fill_n(static_cast<char*>(address), 4096, 'x');
  EXPECT_THAT(Statistics(), HasSubstr("\"workspace_bytes\": 4096"));
  ASSERT_EQ(geminid_engine_release(engine_, block, error_), GEMINID_OK) << Message();
  EXPECT_THAT(Statistics(), HasSubstr("\"workspace_bytes\": 0"));
  EXPECT_EQ(geminid_engine_release(engine_, block, error_), GEMINID_INVALID_ARGUMENT);
  EXPECT_FALSE(IsFinal());
}

TEST_F(TrainingTest, Statistics_AreAnObjectWithThePlan) {
  EXPECT_THAT(Statistics(),
              AllOf(HasSubstr("\"parameters\": 256"), HasSubstr("\"arena_bytes\": 1048576"),
                    HasSubstr("\"plan\""), HasSubstr("\"explanation\"")));
}

TEST_F(TrainingTest, Plan_IsNullBeforeASampleAndThenHasEachMoment) {
  EXPECT_EQ(Plan(), "null");
  for (int step = 0; step < 2; ++step) ASSERT_NO_FATAL_FAILURE(Descend());
  const std::string plan = Plan();
  EXPECT_THAT(plan, HasSubstr("\"everything_fits\": true"));
  EXPECT_THAT(plan, HasSubstr("\"name\": \"'a' to 'b'\""));
  // A plan has one moment for each operator of a step.
  const std::string moment = "\"uses\"";
  size_t moments = 0;
  for (size_t at = plan.find(moment); at != plan.npos; at = plan.find(moment, at + 1)) ++moments;
  EXPECT_EQ(moments, 2u);
}

TEST_F(TrainingTest, Session_DescribesItsDevice) {
  char* json = nullptr;
  ASSERT_EQ(geminid_session_describe(session_, &json, error_), GEMINID_OK);
  EXPECT_THAT(json, AllOf(HasSubstr("\"kind\": \"host\""), HasSubstr("\"arena_bytes\": 1048576"),
                          HasSubstr("\"owns_daemon\": true")));
  geminid_free(json);
  EXPECT_EQ(geminid_session_health(session_, error_), GEMINID_OK);
}

TEST_F(TrainingTest, MemoryHeld_IsZerosAndStays) {
  void* address = nullptr;
  int found = -1;
  ASSERT_EQ(geminid_session_hold(session_, "notes", 4096, &address, &found, error_), GEMINID_OK)
      << Message();
  EXPECT_EQ(found, 0);
  auto* const bytes = static_cast<unsigned char*>(address);
  EXPECT_TRUE(std::all_of(bytes, bytes + 4096, [](unsigned char byte) { return byte == 0; }));
  std::fill_n(bytes, 4096, 7);
  ASSERT_NO_FATAL_FAILURE(Descend());
  geminid_engine_free(&engine_);
  EXPECT_EQ(bytes[4095], 7) << "it is the session's";
}

// This process replaces itself: it leaves its session as a dead process would.
TEST_F(TrainingTest, RanksOfARun_AreThoseThatLiveOrHaveLeft) {
  const std::string socket = Socket();
  const auto ranks_of = [&](const char* run) {
    char* json = nullptr;
    EXPECT_EQ(geminid_run_ranks(socket.c_str(), nullptr, run, 10, &json, error_), GEMINID_OK)
        << Message();
    const std::string ranks = json == nullptr ? "" : json;
    geminid_free(json);
    return ranks;
  };
  geminid_session_options connect;
  geminid_session_options_init(&connect, sizeof connect);
  connect.socket = socket.c_str();
  connect.run = "r";
  connect.rank = 1;
  connect.world_size = 3;
  connect.keep_on_death = 1;
  connect.device_memory_bytes = 1 << 20;
  geminid_session* session = nullptr;
  ASSERT_EQ(geminid_session_connect(&connect, &session, error_), GEMINID_OK) << Message();
  void* address = nullptr;
  int found = 0;
  ASSERT_EQ(geminid_session_hold(session, "notes", 64, &address, &found, error_), GEMINID_OK)
      << Message();
  EXPECT_THAT(ranks_of("r"), HasSubstr("\"is_left\": false"));
  ASSERT_EQ(geminid_session_leave(session, error_), GEMINID_OK);
  geminid_session_free(&session);
  EXPECT_THAT(ranks_of("r"),
              AllOf(HasSubstr("\"rank\": 1"), HasSubstr("\"world_size\": 3"),
                    HasSubstr("\"device_bytes\": 1048576"), HasSubstr("\"is_left\": true")));
  EXPECT_THAT(ranks_of("another"), Not(HasSubstr("rank")));
  char* json = nullptr;
  EXPECT_EQ(geminid_run_ranks(socket.c_str(), nullptr, "", 10, &json, error_),
            GEMINID_INVALID_ARGUMENT);
}

TEST_F(TrainingTest, MemoryHeld_IsTheSuccessorsWithTheEngine) {
  struct Half {
    geminid_session* session = nullptr;
    geminid_engine* engine = nullptr;
    unsigned char* notes = nullptr;
    int found = -1;
  };
  char* json = nullptr;
  const std::string socket = Socket();
  geminid_optimizer sgd;
  geminid_optimizer_init(&sgd, sizeof sgd, GEMINID_SGD);
  const auto begin = [&](Half* half) {
    geminid_session_options connect;
    geminid_session_options_init(&connect, sizeof connect);
    connect.socket = socket.c_str();
    connect.run = "r";
    connect.keep_on_death = 1;
    connect.device_memory_bytes = 1 << 20;
    ASSERT_EQ(geminid_session_connect(&connect, &half->session, error_), GEMINID_OK) << Message();
    void* address = nullptr;
    ASSERT_EQ(geminid_session_hold(half->session, "notes", 64, &address, &half->found, error_),
              GEMINID_OK)
        << Message();
    half->notes = static_cast<unsigned char*>(address);
    geminid_engine_options options = EngineOptions(&sgd);
    options.resume = 1;
    const std::vector<geminid_parameter> parameters = Parameters();
    ASSERT_EQ(geminid_engine_create(half->session, ranks_, parameters.data(), 2, &options,
                                    &half->engine, error_),
              GEMINID_OK)
        << Message();
  };
  geminid_engine_free(&engine_);
  Half first, second;
  ASSERT_NO_FATAL_FAILURE(begin(&first));
  EXPECT_EQ(first.found, 0);
  ASSERT_EQ(geminid_session_describe(first.session, &json, error_), GEMINID_OK);
  EXPECT_THAT(json, HasSubstr("\"owns_daemon\": false"));
  geminid_free(json);
  engine_ = first.engine;
  ASSERT_NO_FATAL_FAILURE(InitializeWith(0));
  ASSERT_NO_FATAL_FAILURE(Descend());
  first.notes[63] = 9;
  ASSERT_EQ(geminid_session_leave(first.session, error_), GEMINID_OK);
  geminid_engine_free(&engine_);
  geminid_session_free(&first.session);

  ASSERT_NO_FATAL_FAILURE(begin(&second));
  EXPECT_EQ(second.found, 1);
  EXPECT_EQ(second.notes[63], 9);
  engine_ = second.engine;
  geminid_resumed resumed;
  geminid_resumed_init(&resumed, sizeof resumed);
  ASSERT_EQ(geminid_engine_resumed(engine_, &resumed, error_), GEMINID_OK) << Message();
  EXPECT_EQ(resumed.resumed, 1);
  EXPECT_EQ(resumed.step, 1u);
  ASSERT_NO_FATAL_FAILURE(Descend());
  EXPECT_THAT(Read(kA), Each(0.75f));
  EXPECT_EQ(second.notes[63], 9) << "the engine's memory is another";
  geminid_engine_free(&engine_);
  geminid_session_free(&second.session);
}

TEST_F(TrainingTest, Broadcast_OfARankThatIsNone_IsRefused) {
  char bytes[] = "unchanged";
  EXPECT_EQ(geminid_ranks_broadcast(ranks_, bytes, sizeof bytes, 0, error_), GEMINID_OK);
  EXPECT_STREQ(bytes, "unchanged");
  EXPECT_EQ(geminid_ranks_broadcast(ranks_, bytes, sizeof bytes, 1, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("from"));
}

TEST_F(TrainingTest, RankAlone_IsTheFirstOfOne) {
  geminid_place place;
  geminid_place_init(&place, sizeof place);
  ASSERT_EQ(geminid_ranks_place(ranks_, &place, error_), GEMINID_OK);
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.world_size, 1);
  double values[] = {1.5, 2.5};
  ASSERT_EQ(geminid_ranks_sum(ranks_, values, 2, error_), GEMINID_OK) << Message();
  EXPECT_EQ(values[1], 2.5);
  EXPECT_EQ(geminid_ranks_barrier(ranks_, error_), GEMINID_OK);
}

TEST_F(TrainingTest, StableAddress_IsThatOfEveryOperation) {
  const void* address = this;
  ASSERT_EQ(geminid_engine_stable_address(engine_, kA, &address, error_), GEMINID_OK);
  EXPECT_EQ(address, nullptr) << "it was not asked for";
  geminid_engine_free(&engine_);
  geminid_engine_options options = EngineOptions(nullptr);
  options.stable_addresses = 1;
  ASSERT_EQ(Create(options, Parameters()), GEMINID_OK) << Message();
  ASSERT_NO_FATAL_FAILURE(InitializeWith(0));
  ASSERT_EQ(geminid_engine_stable_address(engine_, kA, &address, error_), GEMINID_OK);
  uint64_t operation = 0;
  ASSERT_EQ(geminid_engine_use(engine_, GEMINID_EVALUATE, &kA, 1, 0, &operation, error_),
            GEMINID_OK);
  const void* weight = nullptr;
  ASSERT_EQ(geminid_engine_weight(engine_, operation, kA, &weight, error_), GEMINID_OK);
  EXPECT_EQ(weight, address);
  float copy[kElements];
  void* const to = copy;
  EXPECT_EQ(geminid_engine_copy_weights(engine_, operation, &kB, &to, 1, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("CopyWeight: the operation has no weight"));
}

class OptimizersTest : public CApiTest, public ::testing::WithParamInterface<int32_t> {};

TEST_P(OptimizersTest, Optimizer_BeginsWithTheDefaultsAndTrains) {
  geminid_optimizer optimizer;
  geminid_optimizer_init(&optimizer, sizeof optimizer, GetParam());
  EXPECT_EQ(optimizer.kind, GetParam());
  ASSERT_NO_FATAL_FAILURE(Connect());
  ASSERT_EQ(Create(EngineOptions(&optimizer), Parameters()), GEMINID_OK) << Message();
  ASSERT_NO_FATAL_FAILURE(InitializeWith(0.5));
  ASSERT_NO_FATAL_FAILURE(Descend());
  float value = 0;
  ASSERT_EQ(geminid_engine_read_shard(engine_, kA, GEMINID_VALUE, 0, &value, 1, error_),
            GEMINID_OK);
  EXPECT_GT(value, 0.5) << "it went towards 1";
}

INSTANTIATE_TEST_SUITE_P(All, OptimizersTest,
                         ::testing::Range(int32_t{GEMINID_ADAMW}, int32_t{GEMINID_CAME} + 1));

TEST(OptimizerDefaults, AreThoseOfTheOptions) {
  geminid_optimizer optimizer;
  geminid_optimizer_init(&optimizer, sizeof optimizer, GEMINID_ADAMW);
  EXPECT_EQ(optimizer.beta2, zero::AdamWOptions().beta2);
  EXPECT_EQ(optimizer.weight_decay, zero::AdamWOptions().weight_decay);
  geminid_optimizer_init(&optimizer, sizeof optimizer, GEMINID_ADAM);
  EXPECT_EQ(optimizer.beta2, zero::AdamOptions().beta2);
  geminid_optimizer_init(&optimizer, sizeof optimizer, GEMINID_LAMB);
  EXPECT_EQ(optimizer.decoupled, 1);
  EXPECT_EQ(optimizer.always_adapt, 0);
  geminid_optimizer_init(&optimizer, sizeof optimizer, GEMINID_ADAFACTOR);
  EXPECT_EQ(optimizer.epsilon1, zero::AdafactorOptions().epsilon1);
  EXPECT_EQ(optimizer.epsilon, 0) << "it has none of this name";
}

}  // namespace
}  // namespace geminid::c_api
