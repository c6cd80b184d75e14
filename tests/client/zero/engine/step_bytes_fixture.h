// Counts the bytes that ranks exchange in a step.
#ifndef GEMINID_TESTS_CLIENT_ZERO_ENGINE_STEP_BYTES_FIXTURE_H_
#define GEMINID_TESTS_CLIENT_ZERO_ENGINE_STEP_BYTES_FIXTURE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {

class StepBytesTest : public EngineTest {
 protected:
  static constexpr int kFewSteps = 3;
  static constexpr int kManySteps = 9;

  // Uses layers of one chunk each.
  void UseSquareLayers(int layers) {
    run_.model = SyntheticModel{};
    for (int layer = 0; layer < layers; ++layer) {
      run_.model.parameters.push_back(
          {.name = "layer " + std::to_string(layer), .shape = {128, 128}});
      run_.model.operators.push_back({static_cast<uint32_t>(layer)});
    }
  }

  // Counts of rank 0 in one of the steps after the first ones, which are sampled and planned. A
  // count must be the same in each of these steps.
  class StepBytes {
   public:
    StepBytes(SyntheticResult few, SyntheticResult many)
        : few_(std::move(few)), many_(std::move(many)) {}

    uint64_t received() const { return Counted(&Statistics::received_bytes); }
    uint64_t within_host() const { return Counted(&Statistics::received_within_host_bytes); }
    uint64_t to_device() const { return Counted(&Statistics::host_to_device_bytes); }
    uint64_t lower_bound() const { return Counted(&Statistics::transfer_bytes_lower_bound); }
    // The bytes of weights that all-gathers received from rank `peer`.
    uint64_t gathered_of(size_t peer) const {
      return PerStep(GatheredOf(few_, peer), GatheredOf(many_, peer));
    }
    // The statistics at the end of kManySteps.
    const Statistics& after() const { return many_.statistics[0]; }

   private:
    uint64_t Counted(uint64_t Statistics::*field) const {
      return PerStep(few_.statistics[0].*field, many_.statistics[0].*field);
    }
    static uint64_t PerStep(uint64_t few, uint64_t many) {
      constexpr uint64_t kSteps = kManySteps - kFewSteps;
      EXPECT_EQ((many - few) % kSteps, 0u) << many << " - " << few;
      return (many - few) / kSteps;
    }
    static uint64_t GatheredOf(const SyntheticResult& result, size_t peer) {
      constexpr auto kAllGather = static_cast<size_t>(collectives::OpKind::kAllGather);
      const auto& peers = result.exchanged[0].traffic[kAllGather].peers;
      return peer < peers.size() ? peers[peer].bytes_received : 0;
    }

    const SyntheticResult few_, many_;
  };
  StepBytes BytesOfAStep() {
    run_.steps = kFewSteps;
    SyntheticResult few = MustTrain();
    run_.steps = kManySteps;
    return {std::move(few), MustTrain()};
  }

  // The bytes of all chunks, including padding.
  static uint64_t ModelBytes(const Statistics& statistics) {
    const double elements =
        static_cast<double>(statistics.parameters) / (1 - statistics.waste_ratio);
    return static_cast<uint64_t>(std::llround(elements)) * SizeOf(DataType::kBFloat16);
  }
};

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_ENGINE_STEP_BYTES_FIXTURE_H_
