// Errors through the C interface: a clear code and message, and never a crash.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "geminid/c_checkpoint.h"
#include "tests/client/c_api/c_api_fixture.h"

namespace geminid::c_api {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ErrorsTest : public CApiTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Connect());
    ASSERT_NO_FATAL_FAILURE(MakeEngine());
  }
};

TEST_F(ErrorsTest, HyperparameterOutOfItsRange_IsNamedWithItsValueAndRange) {
  geminid_optimizer optimizer;
  geminid_optimizer_init(&optimizer, sizeof optimizer, GEMINID_LION);
  optimizer.beta1 = NAN;
  geminid_engine_options options;
  geminid_engine_options_init(&options, sizeof options);
  options.optimizer = &optimizer;
  const std::vector<geminid_parameter> parameters = Parameters();
  geminid_engine* engine = nullptr;
  EXPECT_EQ(geminid_engine_create(session_, ranks_, parameters.data(), parameters.size(), &options,
                                  &engine, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("beta1 is nan; with lion it must be from 0 to below 1"));
  optimizer.beta1 = 0.9;
  options.timeout_seconds = -2;
  EXPECT_EQ(geminid_engine_create(session_, ranks_, parameters.data(), parameters.size(), &options,
                                  &engine, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("timeout_seconds is -2; it must be above 0"));
  geminid_step_input input;
  geminid_step_input_init(&input, sizeof input);
  input.learning_rate = NAN;
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK) << Message();
  ASSERT_EQ(AddGradient(kA, 2), GEMINID_OK) << Message();
  EXPECT_EQ(geminid_engine_step(engine_, &input, nullptr, error_), GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("learning_rate is nan; it must be from 0 to"));
}

TEST_F(ErrorsTest, EngineFreedLast_StillTrains) {
  geminid_session_free(&session_);
  geminid_ranks_free(&ranks_);
  EXPECT_EQ(session_, nullptr);
  ASSERT_NO_FATAL_FAILURE(Descend());
  EXPECT_EQ(FirstOf(kA, GEMINID_EVALUATE), 0.5f);
}

TEST_F(ErrorsTest, HandleFreedTwice_IsIgnored) {
  geminid_engine* copy = engine_;
  geminid_engine_free(&engine_);
  geminid_engine_free(&engine_);
  geminid_engine_free(&copy);
  geminid_engine_free(nullptr);
  EXPECT_EQ(copy, nullptr);
}

TEST_F(ErrorsTest, HandleUsedAfterItWasFreed_IsRefused) {
  geminid_engine* const copy = engine_;
  geminid_engine_free(&engine_);
  EXPECT_EQ(geminid_engine_begin_micro_batch(copy, error_), GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("is not a valid engine, or the engine was freed"));
}

TEST_F(ErrorsTest, HandleOfAnotherKind_IsRefused) {
  auto* const wrong = reinterpret_cast<geminid_engine*>(session_);
  EXPECT_EQ(geminid_engine_begin_micro_batch(wrong, error_), GEMINID_INVALID_ARGUMENT);
}

TEST_F(ErrorsTest, OperationsForgotten_EndWithFinishAll) {
  uint64_t first = 0, second = 0;
  ASSERT_EQ(geminid_engine_use(engine_, GEMINID_EVALUATE, &kA, 1, 0, &first, error_), GEMINID_OK);
  ASSERT_EQ(geminid_engine_use(engine_, GEMINID_EVALUATE, &kB, 1, 0, &second, error_), GEMINID_OK);
  EXPECT_NE(first, second);
  EXPECT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_FAILED_PRECONDITION)
      << "operations are open";
  EXPECT_FALSE(IsFinal());
  ASSERT_EQ(geminid_engine_finish_all(engine_, 0, error_), GEMINID_OK) << Message();
  EXPECT_EQ(geminid_engine_finish(engine_, first, 0, error_), GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("is not open"));
  const void* weight = nullptr;
  EXPECT_EQ(geminid_engine_weight(engine_, second, kB, &weight, error_), GEMINID_INVALID_ARGUMENT);
  float copy[kElements];
  void* const to = copy;
  EXPECT_EQ(geminid_engine_copy_weights(engine_, first, &kA, &to, 1, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("is not open"));
  ASSERT_NO_FATAL_FAILURE(Descend());
}

TEST_F(ErrorsTest, EngineFreedWithOpenOperations_LeavesTheSessionToTheNext) {
  uint64_t operation = 0, block = 0;
  void* address = nullptr;
  ASSERT_EQ(geminid_engine_use(engine_, GEMINID_EVALUATE, &kA, 1, 0, &operation, error_),
            GEMINID_OK);
  ASSERT_EQ(geminid_engine_allocate(engine_, 64, &block, &address, error_), GEMINID_OK);
  geminid_engine_free(&engine_);
  ASSERT_NO_FATAL_FAILURE(MakeEngine());
  ASSERT_NO_FATAL_FAILURE(Descend());
}

TEST_F(ErrorsTest, CallRefused_IsNotFinal) {
  uint64_t operation = 0;
  const uint32_t unknown = 2;
  EXPECT_EQ(geminid_engine_use(engine_, GEMINID_FORWARD, &unknown, 1, 0, &operation, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("parameter 2 does not exist; the engine has 2"));
  EXPECT_FALSE(IsFinal());
  EXPECT_EQ(AddGradient(kA, 1), GEMINID_FAILED_PRECONDITION) << "no micro-batch has begun";
  EXPECT_FALSE(IsFinal());
  EXPECT_EQ(geminid_engine_health(engine_, error_), GEMINID_OK);
  ASSERT_NO_FATAL_FAILURE(Descend());
}

TEST_F(ErrorsTest, CreateRefused_LeavesTheSessionAndTheRanksUsable) {
  geminid_engine_free(&engine_);
  geminid_engine_options options = EngineOptions(nullptr);
  options.update_threads = 0;
  EXPECT_EQ(Create(options, Parameters()), GEMINID_INVALID_ARGUMENT);
  EXPECT_FALSE(IsFinal());
  double one = 1;
  EXPECT_EQ(geminid_ranks_sum(ranks_, &one, 1, error_), GEMINID_OK) << Message();
  ASSERT_NO_FATAL_FAILURE(MakeEngine());
  ASSERT_NO_FATAL_FAILURE(Descend());
}

TEST_F(ErrorsTest, ResumeInASessionThatCannot_IsRefused) {
  geminid_engine_free(&engine_);
  geminid_engine_options options = EngineOptions(nullptr);
  options.resume = 1;
  EXPECT_EQ(Create(options, Parameters()), GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("resume needs a session with the name of a run"));
}

TEST_F(ErrorsTest, EngineThatFailed_SaysSoFromThenOn) {
  geminid_engine_free(&engine_);
  geminid_optimizer sgd;
  geminid_optimizer_init(&sgd, sizeof sgd, GEMINID_SGD);
  geminid_engine_options options = EngineOptions(&sgd);
  options.update = GEMINID_UPDATE_IN_BACKWARD;
  ASSERT_EQ(Create(options, Parameters()), GEMINID_OK) << Message();
  ASSERT_NO_FATAL_FAILURE(InitializeWith(0));
  geminid_step_input input;
  geminid_step_input_init(&input, sizeof input);
  input.learning_rate = 1;
  ASSERT_EQ(geminid_engine_begin_step(engine_, &input, error_), GEMINID_OK) << Message();
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK);
  // A gradient that is not finite cannot be undone in this mode.
  (void)AddGradient(kA, NAN);
  (void)AddGradient(kB, NAN);
  EXPECT_EQ(geminid_engine_step(engine_, &input, nullptr, error_), GEMINID_DATA_LOSS) << Message();
  EXPECT_TRUE(IsFinal());
  EXPECT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_DATA_LOSS);
  EXPECT_TRUE(IsFinal());
  EXPECT_EQ(geminid_engine_health(engine_, nullptr), GEMINID_DATA_LOSS);
}

TEST_F(ErrorsTest, RanksUsedByManyThreads_GiveEachItsOwnSums) {
  constexpr int kThreads = 4, kSums = 500;
  constexpr size_t kValues = 4096;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const std::vector<double> own(kValues, thread);
      for (int sum = 0; sum < kSums; ++sum) {
        std::vector<double> summed = own;
        const geminid_code code =
            geminid_ranks_sum(ranks_, summed.data(), summed.size(), /*error=*/nullptr);
        wrong += code == GEMINID_OK && summed == own ? 0 : 1;  // the sum of one rank
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0) << "of " << kThreads * kSums;
}

TEST_F(ErrorsTest, HandlesOfTheParent_AreRefusedInAForkedChild) {
  const pid_t child = fork();
  if (child == 0) {
    int wrong = 0;
    float value = 0;
    wrong += geminid_engine_begin_micro_batch(engine_, error_) != GEMINID_FAILED_PRECONDITION;
    wrong += geminid_engine_read_shard(engine_, kA, GEMINID_VALUE, 0, &value, 1, error_) !=
             GEMINID_FAILED_PRECONDITION;
    wrong += geminid_engine_health(engine_, error_) != GEMINID_FAILED_PRECONDITION;
    geminid_engine_free(&engine_);
    geminid_session_free(&session_);
    _exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ASSERT_NO_FATAL_FAILURE(Descend());
}

TEST_F(ErrorsTest, ErrorOfACallThatWentWell_IsEmpty) {
  EXPECT_EQ(geminid_engine_begin_micro_batch(nullptr, error_), GEMINID_INVALID_ARGUMENT);
  EXPECT_EQ(geminid_error_code(error_), GEMINID_INVALID_ARGUMENT);
  EXPECT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK);
  EXPECT_EQ(geminid_error_code(error_), GEMINID_OK);
  EXPECT_EQ(Message(), "");
}

TEST_F(ErrorsTest, Null_IsRefusedByEveryFunction) {
  geminid_session_options connect = SessionOptions();
  geminid_ranks_options alone;
  geminid_ranks_options_init(&alone, sizeof alone);
  geminid_engine_options options = EngineOptions(nullptr);
  const std::vector<geminid_parameter> parameters = Parameters();
  geminid_engine* const e = engine_;
  geminid_error* const r = error_;
  void* address = nullptr;
  int found = 0;
  uint64_t bytes = 0;
  const std::vector<std::function<geminid_code()>> calls = {
      [&] { return geminid_session_connect(nullptr, &session_, r); },
      [&] { return geminid_session_connect(&connect, nullptr, r); },
      [&] { return geminid_session_describe(session_, nullptr, r); },
      [&] { return geminid_session_health(nullptr, r); },
      [&] { return geminid_session_hold(session_, nullptr, 64, &address, &found, r); },
      [&] { return geminid_session_hold(session_, "notes", 64, nullptr, &found, r); },
      [&] { return geminid_session_hold(session_, "notes", 64, &address, nullptr, r); },
      [&] { return geminid_session_hold(nullptr, "notes", 64, &address, &found, r); },
      [&] { return geminid_session_leave(nullptr, r); },
      [&] { return geminid_ranks_connect(nullptr, &ranks_, r); },
      [&] { return geminid_ranks_connect(&alone, nullptr, r); },
      [&] { return geminid_ranks_place(ranks_, nullptr, r); },
      [&] { return geminid_ranks_sum(ranks_, nullptr, 1, r); },
      [&] { return geminid_ranks_barrier(nullptr, r); },
      [&] {
        return geminid_engine_create(nullptr, ranks_, parameters.data(), 2, &options, &engine_, r);
      },
      [&] {
        return geminid_engine_create(session_, nullptr, parameters.data(), 2, &options, &engine_,
                                     r);
      },
      [&] { return geminid_engine_create(session_, ranks_, nullptr, 2, &options, &engine_, r); },
      [&] {
        return geminid_engine_create(session_, ranks_, parameters.data(), 2, nullptr, &engine_, r);
      },
      [&] {
        return geminid_engine_create(session_, ranks_, parameters.data(), 2, &options, nullptr, r);
      },
      [&] { return geminid_engine_health(nullptr, r); },
      [&] { return geminid_engine_initialize(e, nullptr, nullptr, r); },
      [&] { return geminid_engine_shard(e, kA, nullptr, 0, nullptr, r); },
      [&] { return geminid_engine_has_state(e, kA, GEMINID_VALUE, nullptr, r); },
      [&] { return geminid_engine_read_shard(e, kA, GEMINID_VALUE, 0, nullptr, 1, r); },
      [&] { return geminid_engine_write_shard(e, kA, GEMINID_VALUE, 0, nullptr, 1, r); },
      [&] { return geminid_engine_read_parameter(e, kA, nullptr, kElements, r); },
      [&] { return geminid_engine_get_progress(e, nullptr, r); },
      [&] { return geminid_engine_restore(e, nullptr, r); },
      [&] { return geminid_engine_resumed(e, nullptr, r); },
      [&] { return geminid_engine_save(e, nullptr, 0, 0, nullptr, r); },
      [&] { return geminid_engine_save_with(e, nullptr, nullptr, nullptr, r); },
      [&] { return geminid_engine_load_run(e, nullptr, nullptr, r); },
      [&] { return geminid_engine_load(e, nullptr, nullptr, r); },
      [&] { return geminid_engine_begin_micro_batch(nullptr, r); },
      [&] { return geminid_engine_cancel_micro_batch(nullptr, r); },
      [&] { return geminid_engine_use(e, GEMINID_EVALUATE, nullptr, 1, 0, nullptr, r); },
      [&] { return geminid_engine_use(e, GEMINID_EVALUATE, &kA, 1, 0, nullptr, r); },
      [&] { return geminid_engine_device_bytes(e, &kA, 1, nullptr, 0, nullptr, r); },
      [&] { return geminid_engine_device_bytes(e, nullptr, 1, nullptr, 0, &bytes, r); },
      [&] { return geminid_engine_weight(e, 0, kA, nullptr, r); },
      [&] { return geminid_engine_copy_weights(e, 1, &kA, nullptr, 1, r); },
      [&] { return geminid_engine_gradient(e, 0, kA, nullptr, nullptr, r); },
      [&] { return geminid_engine_gradient_written(nullptr, 0, kA, r); },
      [&] { return geminid_engine_finish(nullptr, 0, 0, r); },
      [&] { return geminid_engine_finish_all(nullptr, 0, r); },
      [&] { return geminid_engine_stable_address(e, kA, nullptr, r); },
      [&] { return geminid_engine_add_gradient(e, kA, nullptr, 4, GEMINID_FLOAT32, 0, r); },
      [&] { return geminid_engine_gradient_norm(e, nullptr, r); },
      [&] { return geminid_engine_read_gradient(e, kA, 0, nullptr, 1, r); },
      [&] { return geminid_engine_write_gradient(e, kA, 0, nullptr, 1, r); },
      [&] { return geminid_engine_loss_scale(e, nullptr, r); },
      [&] { return geminid_engine_begin_step(e, nullptr, r); },
      [&] { return geminid_engine_step(e, nullptr, nullptr, r); },
      [&] { return geminid_engine_synchronize(nullptr, r); },
      [&] { return geminid_engine_allocate(e, 1, nullptr, nullptr, r); },
      [&] { return geminid_engine_release(nullptr, 1, r); },
      [&] { return geminid_engine_report_workspace(nullptr, 1, r); },
      [&] { return geminid_engine_statistics(e, nullptr, r); },
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i](), GEMINID_INVALID_ARGUMENT) << "call " << i << ": " << Message();
    EXPECT_NE(Message(), "") << "call " << i;
  }
  ASSERT_NO_FATAL_FAILURE(Descend());
}

TEST_F(ErrorsTest, StructWithoutItsSize_IsRefused) {
  geminid_step_input input;
  std::memset(&input, 0, sizeof input);
  EXPECT_EQ(geminid_engine_step(engine_, &input, nullptr, error_), GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), AllOf(HasSubstr("struct_size 0"), HasSubstr("_init")));
  geminid_step_result result;
  std::memset(&result, 0, sizeof result);
  geminid_step_input_init(&input, sizeof input);
  EXPECT_EQ(geminid_engine_step(engine_, &input, &result, error_), GEMINID_INVALID_ARGUMENT);
  std::vector<geminid_parameter> parameters = Parameters();
  parameters[1].struct_size = 3;
  geminid_engine* other = nullptr;
  const geminid_engine_options options = EngineOptions(nullptr);
  EXPECT_EQ(geminid_engine_create(session_, ranks_, parameters.data(), 2, &options, &other, error_),
            GEMINID_INVALID_ARGUMENT);
}

// The struct is that of a program compiled with a header whose groups ended there.
TEST_F(ErrorsTest, StructOfAnEarlierHeader_HasTheDefaultsOfWhatItLacks) {
  struct EarlierGroup {
    size_t struct_size;
    double learning_rate, weight_decay;
    double foreign;  // does not belong to the group
  };
  EarlierGroup earlier = {offsetof(EarlierGroup, foreign), 0.5, NAN, 77};
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK) << Message();
  ASSERT_EQ(AddGradient(kA, 2), GEMINID_OK) << Message();
  geminid_step_input input;
  geminid_step_input_init(&input, sizeof input);
  input.groups = reinterpret_cast<const geminid_group*>(&earlier);
  input.group_count = 1;
  ASSERT_EQ(geminid_engine_step(engine_, &input, nullptr, error_), GEMINID_OK) << Message();
  EXPECT_EQ(FirstOf(kA, GEMINID_EVALUATE), -1);
}

TEST_F(ErrorsTest, StepOfAnEarlierHeader_HasGradientsThatNothingHasScaled) {
  struct EarlierInput {
    alignas(geminid_step_input) unsigned char bytes[offsetof(geminid_step_input, gradient_scale)];
    double foreign;  // does not belong to the input
  };
  EarlierInput earlier;
  earlier.foreign = 77;
  auto* const input = reinterpret_cast<geminid_step_input*>(&earlier);
  geminid_step_input_init(input, sizeof earlier.bytes);
  EXPECT_EQ(earlier.foreign, 77);
  input->learning_rate = 0.5;
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK) << Message();
  ASSERT_EQ(AddGradient(kA, 2), GEMINID_OK) << Message();
  ASSERT_EQ(geminid_engine_step(engine_, input, nullptr, error_), GEMINID_OK) << Message();
  EXPECT_EQ(FirstOf(kA, GEMINID_EVALUATE), -1);
}

// The input of a program that was compiled with a later header.
struct LaterInput {
  geminid_step_input input;
  uint64_t later;
};

TEST_F(ErrorsTest, StructOfALaterHeader_IsTakenWhileWhatItAddsIsUnset) {
  LaterInput later;
  std::memset(&later, 0xff, sizeof later);
  geminid_step_input_init(&later.input, sizeof later);
  EXPECT_EQ(later.later, 0u) << "an older library leaves it unset";
  ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK);
  EXPECT_EQ(geminid_engine_step(engine_, &later.input, nullptr, error_), GEMINID_OK) << Message();
  later.later = 1;
  EXPECT_EQ(geminid_engine_step(engine_, &later.input, nullptr, error_), GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("install a newer library"));
}

TEST_F(ErrorsTest, NamesThatAreNotUtf8_AreRefused) {
  for (const char* const name : {"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\xaf", "\xf4\x90\x80\x80"}) {
    geminid_engine* other = nullptr;
    std::vector<geminid_parameter> parameters = Parameters();
    parameters[0].name = name;
    const geminid_engine_options options = EngineOptions(nullptr);
    EXPECT_EQ(
        geminid_engine_create(session_, ranks_, parameters.data(), 2, &options, &other, error_),
        GEMINID_INVALID_ARGUMENT);
    EXPECT_THAT(Message(), HasSubstr("parameter 0: name is not UTF-8"));
  }
}

// Not by the first save, hours later.
TEST_F(ErrorsTest, NamesThatNoFileCanHold_AreRefused) {
  for (const char* const name : {"", static_cast<const char*>(nullptr), "__metadata__", "a\nb"}) {
    geminid_engine* other = nullptr;
    std::vector<geminid_parameter> parameters = Parameters();
    parameters[1].name = name;
    const geminid_engine_options options = EngineOptions(nullptr);
    EXPECT_EQ(
        geminid_engine_create(session_, ranks_, parameters.data(), 2, &options, &other, error_),
        GEMINID_INVALID_ARGUMENT);
    EXPECT_THAT(Message(), HasSubstr("cannot be saved"));
    EXPECT_FALSE(IsFinal());
  }
}

TEST_F(ErrorsTest, NumbersOutsideTheirEnumeration_AreRefused) {
  geminid_engine* other = nullptr;
  const std::vector<geminid_parameter> parameters = Parameters();
  const auto refused = [&](const geminid_engine_options& options) {
    return geminid_engine_create(session_, ranks_, parameters.data(), 2, &options, &other,
                                 error_) == GEMINID_INVALID_ARGUMENT;
  };
  geminid_engine_options options = EngineOptions(nullptr);
  options.stage = 4;
  EXPECT_TRUE(refused(options));
  EXPECT_THAT(Message(), HasSubstr("stage is 4; it must be from 1 to 3"));
  options = EngineOptions(nullptr);
  options.state_type = GEMINID_FLOAT16;
  EXPECT_TRUE(refused(options));
  EXPECT_THAT(Message(), HasSubstr("state_type is 3; it must be from 1 to 2"));
  options = EngineOptions(nullptr);
  options.data_type = GEMINID_DEFAULT_TYPE;
  EXPECT_TRUE(refused(options));
  geminid_optimizer unknown;
  geminid_optimizer_init(&unknown, sizeof unknown, 10);
  EXPECT_TRUE(refused(EngineOptions(&unknown)));
  EXPECT_THAT(Message(), HasSubstr("the optimizer's kind is 10"));
  geminid_optimizer muon;
  geminid_optimizer_init(&muon, sizeof muon, GEMINID_MUON);
  muon.muon_rate = 2;
  EXPECT_TRUE(refused(EngineOptions(&muon)));
  EXPECT_THAT(Message(), HasSubstr("muon_rate is 2; it must be from 0 to 1"));
  int has = 0;
  EXPECT_EQ(geminid_engine_has_state(engine_, kA, 3, &has, error_), GEMINID_INVALID_ARGUMENT);
  uint64_t operation = 0;
  EXPECT_EQ(geminid_engine_use(engine_, 3, &kA, 1, 0, &operation, error_),
            GEMINID_INVALID_ARGUMENT);
}

TEST_F(ErrorsTest, ReadOfTheWrongLength_IsRefused) {
  std::vector<float> values(kElements + 1);
  EXPECT_EQ(geminid_engine_read_parameter(engine_, kA, values.data(), values.size(), error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_THAT(Message(), HasSubstr("count is 129; parameter 0 has 128 elements"));
  EXPECT_EQ(
      geminid_engine_read_shard(engine_, kA, GEMINID_VALUE, 1, values.data(), kElements, error_),
      GEMINID_INVALID_ARGUMENT);
  EXPECT_FALSE(IsFinal());
}

TEST(CApiErrors, WithoutADaemon_SayHowToGetOne) {
  geminid_error* const error = geminid_error_new();
  geminid_session_options options;
  geminid_session_options_init(&options, sizeof options);
  options.private_daemon = 1;
  options.daemon_program = "/nowhere/geminid";
  geminid_session* session = nullptr;
  EXPECT_EQ(geminid_session_connect(&options, &session, error), GEMINID_NOT_FOUND);
  EXPECT_THAT(geminid_error_message(error), HasSubstr("/nowhere/geminid"));
  EXPECT_EQ(session, nullptr);
  geminid_error_free(error);
}

TEST(CApiErrors, PrivateDaemonThatHangs_IsWaitedForAsLongAsTheSessionSays) {
  geminid_error* const error = geminid_error_new();
  geminid_session_options options;
  geminid_session_options_init(&options, sizeof options);
  options.private_daemon = 1;
  // A program that says nothing, and reads from a pipe that nobody writes to.
  const std::string program =
      ::testing::TempDir() + "geminid_c_api_hangs_" + std::to_string(getpid());
  const std::string pipe = program + "_pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::ofstream(program) << "#!/bin/sh\nread word < " << pipe << "\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  options.daemon_program = program.c_str();
  options.timeout_seconds = 0.01;
  geminid_session* session = nullptr;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(geminid_session_connect(&options, &session, error), GEMINID_DEADLINE_EXCEEDED);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(9));
  std::filesystem::remove(program);
  std::filesystem::remove(pipe);
  geminid_error_free(error);
}

TEST(CApiErrors, RanksOfARunWithoutADaemon_AreAskedForByPath) {
  geminid_error* const error = geminid_error_new();
  char* json = nullptr;
  EXPECT_EQ(geminid_run_ranks("/nowhere/socket", nullptr, "run", 0.01, &json, error),
            GEMINID_DEADLINE_EXCEEDED);
  EXPECT_THAT(geminid_error_message(error), HasSubstr("no daemon at /nowhere/socket"));
  geminid_error_free(error);
}

// Also a number that is too small for any clock.
TEST(CApiErrors, TimeoutsThatAreNotAboveZero_AreRefusedByNameWithTheirValue) {
  geminid_error* const error = geminid_error_new();
  const auto expect_refused = [&](geminid_code code, const std::string& words) {
    EXPECT_EQ(code, GEMINID_INVALID_ARGUMENT) << words;
    EXPECT_THAT(geminid_error_message(error), HasSubstr(words));
  };
  geminid_session_options session_options;
  geminid_session_options_init(&session_options, sizeof session_options);
  geminid_ranks_options ranks_options;
  geminid_ranks_options_init(&ranks_options, sizeof ranks_options);
  geminid_session* session = nullptr;
  geminid_ranks* ranks = nullptr;
  char* json = nullptr;
  for (const auto& [seconds, value] :
       {std::pair{-1.0, "-1"}, {0.0, "0"}, {double{NAN}, "nan"}, {1e-300, "1e-300"}}) {
    const std::string words = std::string("timeout_seconds is ") + value + "; it must be above 0";
    session_options.timeout_seconds = seconds;
    expect_refused(geminid_session_connect(&session_options, &session, error), words);
    geminid_ranks_options spoilt = ranks_options;
    spoilt.timeout_seconds = seconds;
    expect_refused(geminid_ranks_connect(&spoilt, &ranks, error), words);
    spoilt = ranks_options;
    spoilt.connect_timeout_seconds = seconds;
    expect_refused(geminid_ranks_connect(&spoilt, &ranks, error), "connect_" + words);
    expect_refused(geminid_run_ranks("/nowhere", nullptr, "run", seconds, &json, error), words);
  }
  EXPECT_EQ(session, nullptr);
  EXPECT_EQ(ranks, nullptr);
  geminid_error_free(error);
}

TEST(CApiErrors, OfNothing_AreEmpty) {
  EXPECT_EQ(geminid_error_code(nullptr), GEMINID_OK);
  EXPECT_STREQ(geminid_error_message(nullptr), "");
  EXPECT_EQ(geminid_error_is_final(nullptr), 0);
  geminid_error_free(nullptr);
  EXPECT_STREQ(geminid_code_name(GEMINID_DATA_LOSS), "DATA_LOSS");
  EXPECT_STREQ(geminid_code_name(-1), "UNKNOWN");
  EXPECT_STREQ(geminid_code_name(17), "UNKNOWN");
  EXPECT_STREQ(geminid_version(), GEMINID_EXPECTED_VERSION);
}

}  // namespace
}  // namespace geminid::c_api
