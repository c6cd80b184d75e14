// A session with its own daemon, one rank, and an engine, all through the C interface.
#ifndef GEMINID_TESTS_CLIENT_C_API_C_API_FIXTURE_H_
#define GEMINID_TESTS_CLIENT_C_API_C_API_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "geminid/c_api.h"

namespace geminid::c_api {

inline constexpr int64_t kRows = 8, kColumns = 16, kElements = kRows * kColumns;
inline constexpr uint32_t kA = 0, kB = 1;

class CApiTest : public ::testing::Test {
 protected:
  // The options of a session with its own daemon, the one that was built.
  static geminid_session_options SessionOptions() {
    static const char* const kFlags[] = {"--host-memory", "256MiB", "--device-memory", "64MiB"};
    geminid_session_options options;
    geminid_session_options_init(&options, sizeof options);
    options.private_daemon = 1;
    options.daemon_program = GEMINID_DAEMON_PROGRAM;
    options.daemon_flags = kFlags;
    options.daemon_flag_count = 4;
    options.device_memory_bytes = 1 << 20;
    return options;
  }

  ~CApiTest() override {
    geminid_engine_free(&engine_);
    geminid_ranks_free(&ranks_);
    geminid_session_free(&session_);
    geminid_error_free(error_);
  }

  void Connect() {
    const geminid_session_options options = SessionOptions();
    ASSERT_EQ(geminid_session_connect(&options, &session_, error_), GEMINID_OK) << Message();
    geminid_ranks_options alone;
    geminid_ranks_options_init(&alone, sizeof alone);
    ASSERT_EQ(geminid_ranks_connect(&alone, &ranks_, error_), GEMINID_OK) << Message();
  }

  static geminid_engine_options EngineOptions(const geminid_optimizer* optimizer) {
    geminid_engine_options options;
    geminid_engine_options_init(&options, sizeof options);
    options.data_type = GEMINID_FLOAT32;
    options.optimizer = optimizer;
    options.clip_norm = 0;
    return options;
  }

  static std::vector<geminid_parameter> Parameters() {
    static const int64_t kShape[] = {kRows, kColumns};
    std::vector<geminid_parameter> parameters(2);
    for (geminid_parameter& parameter : parameters) {
      geminid_parameter_init(&parameter, sizeof parameter);
      parameter.shape = kShape;
      parameter.dimensions = 2;
      parameter.separate_gradient = 1;
    }
    parameters[kA].name = "a";
    parameters[kB].name = "b";
    return parameters;
  }

  geminid_code Create(const geminid_engine_options& options,
                      const std::vector<geminid_parameter>& parameters) {
    return geminid_engine_create(session_, ranks_, parameters.data(), parameters.size(), &options,
                                 &engine_, error_);
  }

  // Makes an engine with plain gradient descent unless other options are given.
  void MakeEngine() {
    geminid_optimizer sgd;
    geminid_optimizer_init(&sgd, sizeof sgd, GEMINID_SGD);
    ASSERT_EQ(Create(EngineOptions(&sgd), Parameters()), GEMINID_OK) << Message();
    InitializeWith(0);
  }

  void InitializeWith(float value) {
    const auto fill = [](void* context, uint32_t, uint64_t, float* values, uint64_t count) {
      std::fill_n(values, count, *static_cast<float*>(context));
      return 0;
    };
    ASSERT_EQ(geminid_engine_initialize(engine_, fill, &value, error_), GEMINID_OK) << Message();
  }

  // The first element of a parameter, as an operator sees it.
  float FirstOf(uint32_t parameter, int32_t pass = GEMINID_FORWARD) {
    uint64_t operation = 0;
    EXPECT_EQ(geminid_engine_use(engine_, pass, &parameter, 1, 0, &operation, error_), GEMINID_OK)
        << Message();
    const void* weight = nullptr;
    EXPECT_EQ(geminid_engine_weight(engine_, operation, parameter, &weight, error_), GEMINID_OK);
    const float first = weight == nullptr ? -1 : *static_cast<const float*>(weight);
    float copy[kElements] = {};
    void* const to = copy;
    EXPECT_EQ(geminid_engine_copy_weights(engine_, operation, &parameter, &to, 1, error_),
              GEMINID_OK);
    EXPECT_EQ(copy[0], first);
    EXPECT_EQ(copy[kElements - 1], static_cast<const float*>(weight)[kElements - 1]);
    EXPECT_EQ(geminid_engine_finish(engine_, operation, 0, error_), GEMINID_OK) << Message();
    return first;
  }

  geminid_code AddGradient(uint32_t parameter, float value) {
    const std::vector<float> gradient(kElements, value);
    return geminid_engine_add_gradient(engine_, parameter, gradient.data(),
                                       sizeof(float) * kElements, GEMINID_FLOAT32, 0, error_);
  }

  geminid_code Step(double learning_rate, geminid_step_result* result = nullptr) {
    geminid_step_input input;
    geminid_step_input_init(&input, sizeof input);
    input.learning_rate = learning_rate;
    return geminid_engine_step(engine_, &input, result, error_);
  }

  // One step of gradient descent on (w - 1)^2 / 2.
  void Descend() {
    ASSERT_EQ(geminid_engine_begin_micro_batch(engine_, error_), GEMINID_OK) << Message();
    for (const uint32_t parameter : {kA, kB}) {
      ASSERT_EQ(AddGradient(parameter, FirstOf(parameter) - 1), GEMINID_OK) << Message();
    }
    ASSERT_EQ(Step(0.5), GEMINID_OK) << Message();
  }

  std::string Message() const { return geminid_error_message(error_); }
  bool IsFinal() const { return geminid_error_is_final(error_) != 0; }

  geminid_error* error_ = geminid_error_new();
  geminid_session* session_ = nullptr;
  geminid_ranks* ranks_ = nullptr;
  geminid_engine* engine_ = nullptr;
};

}  // namespace geminid::c_api

#endif  // GEMINID_TESTS_CLIENT_C_API_C_API_FIXTURE_H_
