// An engine's refusals before it does anything, each with its name.
#include "client/zero/options/engine_setup.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/client/zero/rooms_fixture.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;

class EngineSetupTest : public RoomsTest {
 protected:
  struct Given {
    std::vector<Parameter> parameters;
    Options options{};
  };
  struct Refusal {
    std::function<void(Given*)> spoil;
    const char* says;
  };

  Given Good() const { return {{{.name = "a", .shape = {8}}, {.name = "b", .shape = {2, 4}}}}; }

  absl::Status Check(const Given& given) {
    return EngineSetup(session_.get(), ranks_.get(), given.parameters, given.options).Check();
  }

  // Without its mistake each of these would be accepted.
  void ExpectRefused(const std::vector<Refusal>& refusals) {
    for (const auto& [spoil, says] : refusals) {
      Given given = Good();
      ASSERT_TRUE(Check(given).ok());
      spoil(&given);
      const absl::Status status = Check(given);
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << says << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(says));
    }
  }
};

TEST_F(EngineSetupTest, OptionOutOfItsRange_IsNamedWithItsValue) {
  ExpectRefused({
      {[](Given* g) { g->options.timeout = -absl::Seconds(1); },
       "timeout is -1s; it must be above 0"},
      {[](Given* g) { g->options.accumulate = 0; }, "accumulate is 0"},
      {[](Given* g) { g->options.chunk_elements = ~uint64_t{0}; },
       "chunk_elements is 18446744073709551615; it must be at most 1099511627776"},
      {[](Given* g) { g->options.max_lookahead_moments = -5; }, "max_lookahead_moments is -5"},
      {[](Given* g) { g->options.micro_batch_parts = 2; },
       "micro_batch_parts is 2 with accumulate 1"},
      {[](Given* g) { g->options.update_threads = 0; }, "update_threads is 0"},
      {[](Given* g) { g->options.update_threads = kMaxUpdateThreads + 1; },
       "update_threads is 1025"},
      {[](Given* g) { g->options.clip_norm = -1; }, "clip_norm is -1; it must be 0 (off) or above"},
      {[](Given* g) { g->options.clip_norm = NAN; }, "clip_norm is nan; it must"},
      {[](Given* g) { g->options.state_share = 1.5; }, "state_share is 1.5; it must be"},
      {[](Given* g) { g->options.stage = Stage{0}; }, "there is no ZeRO stage 0"},
  });
}

TEST_F(EngineSetupTest, OptionsThatContradictEachOther_AreRefused) {
  ExpectRefused({
      {[](Given* g) {
         g->options.placement = Placement::kDevice;
         g->options.state_placement = StatePlacement::kHost;
       },
       "with placement device the optimizer's state is on the device too"},
      {[](Given* g) {
         g->options.stage = Stage::kGradients;
         g->options.placement = Placement::kCpu;
       },
       "with placement cpu they leave it"},
      {[this](Given* g) {
         g->options.stage = Stage::kGradients;
         g->options.host_ranks = ranks_.get();
       },
       "leave Options::host_ranks out"},
      {[](Given* g) { g->options.model = g->parameters; }, "give Options::all_ranks, too"},
      {[](Given* g) {
         g->options.loss_scale = LossScalerOptions{};
         g->options.not_finite = NotFinite::kFail;
       },
       "leave Options::not_finite at kSkip"},
      {[](Given* g) {
         g->options.optimizer = LambOptions{};
         g->options.not_finite = NotFinite::kWrite;
       },
       "needs sums over whole tensors"},
  });
}

TEST_F(EngineSetupTest, UpdatesInTheBackwardPassWithWhatNeedsTheWholeGradient_AreRefused) {
  const auto in_backward = [](const std::function<void(Given*)>& also) {
    return [also](Given* g) {
      g->options.update = UpdateTime::kInBackward;
      g->options.clip_norm = 0;
      also(g);
    };
  };
  Given good = Good();
  in_backward([](Given*) {})(&good);
  ASSERT_TRUE(Check(good).ok());
  ExpectRefused({
      {in_backward([](Given* g) { g->options.clip_norm = 1; }), "clipping needs the norm"},
      {in_backward([](Given* g) { g->options.loss_scale = LossScalerOptions{}; }), "loss scaling"},
      {in_backward([](Given* g) { g->options.accumulate = 2; }), "with the last micro-batch only"},
      {in_backward([](Given* g) { g->options.optimizer = LambOptions{}; }),
       "sums over whole tensors"},
      {in_backward([](Given* g) { g->parameters[1].update_without_gradient = false; }),
       "which parameters have no gradient"},
  });
}

TEST_F(EngineSetupTest, ParameterThatCannotBe_IsNamed) {
  ExpectRefused({
      {[](Given* g) { g->parameters[1].name = "a"; }, "two parameters are called 'a'"},
      {[](Given* g) {
         g->parameters[1].shape = {3, 0};
       },
       "'b' has a dimension that is not positive"},
      {[](Given* g) { g->parameters[1].backward_uses = -1; }, "'b' has negative backward_uses"},
      {[](Given* g) { g->parameters[1].learning_rate_scale = NAN; },
       "'b' has the learning_rate_scale nan"},
      {[](Given* g) { g->parameters[1].learning_rate_scale = 1e13; }, "must be from 0 to 1e+12"},
      {[](Given* g) {
         g->parameters[1].shape = {int64_t{1} << 33, int64_t{1} << 33};
       },
       "'b' has more than the 1099511627776 elements"},
      {[](Given* g) { g->parameters[1].weight_decay = -0.1; }, "the weight_decay -0.1; they must"},
      {[](Given* g) { g->parameters[1].data_type = DataType::kInt8; }, "'b' is of int8"},
  });
}

TEST_F(EngineSetupTest, StepThatCannotBe_IsRefused) {
  const Given given = Good();
  const EngineSetup setup(session_.get(), ranks_.get(), given.parameters, given.options);
  using Input = Engine::StepInput;
  ASSERT_TRUE(setup.CheckStep({.learning_rate = 0.1}).ok());
  const std::vector<std::pair<Input, const char*>> refused = {
      {{.learning_rate = -1}, "learning_rate is -1; it must be from 0 to 1e+12"},
      {{.learning_rate = 3.5e38}, "learning_rate is 3.5e+38; it must be from 0 to 1e+12"},
      {{.groups = {{.learning_rate = 0.1}, {.learning_rate = NAN}}},
       "group 1: learning_rate is nan; it must"},
      {{.groups = {{.learning_rate = 0.1, .weight_decay = INFINITY}}},
       "group 0: weight_decay is inf; it must"},
      {{.learning_rate = 0.1, .clip_norm = -1}, "clip_norm is -1"},
      {{.learning_rate = 0.1, .gradient_norm = -1}, "gradient_norm is -1; it must not be"},
      {{.learning_rate = 0.1, .gradient_scale = 0}, "gradient_scale is 0"},
  };
  for (const auto& [input, says] : refused) {
    const absl::Status status = setup.CheckStep(input);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << says << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
  Given grouped = Good();
  grouped.parameters[1].group = 2;
  const EngineSetup of_groups(session_.get(), ranks_.get(), grouped.parameters, grouped.options);
  EXPECT_THAT(std::string(of_groups.CheckStep({.groups = {{}, {}}}).message()),
              HasSubstr("'b' is of group 2; Step has 2 groups"));
}

TEST_F(EngineSetupTest, SessionWithoutAnArena_IsRefused) {
  const auto session = Session::Connect({.socket = env_.socket()});
  ASSERT_TRUE(session.ok()) << session.status();
  const Given given = Good();
  const absl::Status status =
      EngineSetup(session->get(), ranks_.get(), given.parameters, given.options).Check();
  EXPECT_THAT(std::string(status.message()), HasSubstr("connect with device_memory_bytes"));
}

}  // namespace
}  // namespace geminid::zero
