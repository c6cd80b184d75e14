// What ranks exchange in a step, counted.
#ifndef GEMINID_TESTS_CLIENT_ZERO_STEP_BYTES_FIXTURE_H_
#define GEMINID_TESTS_CLIENT_ZERO_STEP_BYTES_FIXTURE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {

class StepBytesTest : public EngineTest {
 protected:
  static constexpr int kFewSteps = 3;
  static constexpr int kManySteps = 9;

  // Layers of one chunk each.
  void UseSquareLayers(int layers) {
    run_.model = SyntheticModel{};
    for (int layer = 0; layer < layers; ++layer) {
      run_.model.parameters.push_back(
          {.name = "layer " + std::to_string(layer), .shape = {128, 128}});
      run_.model.operators.push_back({static_cast<uint32_t>(layer)});
    }
  }

  // Of rank 0 in one of the steps after the first ones, which are sampled and planned.
  struct StepBytes {
    uint64_t received = 0;
    uint64_t within_host = 0;           // of these
    std::vector<uint64_t> gathered_of;  // by rank, of weights
    uint64_t to_device = 0;
    uint64_t lower_bound = 0;
    Statistics after{};
  };
  StepBytes BytesOfAStep() {
    run_.steps = kFewSteps;
    const SyntheticResult few = MustTrain();
    run_.steps = kManySteps;
    const SyntheticResult many = MustTrain();
    const auto per_step = [&](uint64_t Statistics::*field) {
      return PerStep(few.statistics[0].*field, many.statistics[0].*field);
    };
    StepBytes bytes;
    bytes.received = per_step(&Statistics::received_bytes);
    bytes.within_host = per_step(&Statistics::received_within_host_bytes);
    bytes.to_device = per_step(&Statistics::host_to_device_bytes);
    bytes.lower_bound = per_step(&Statistics::transfer_bytes_lower_bound);
    bytes.after = many.statistics[0];
    for (size_t peer = 0; peer < few.statistics.size(); ++peer) {
      bytes.gathered_of.push_back(PerStep(GatheredOf(few, peer), GatheredOf(many, peer)));
    }
    return bytes;
  }

  // All chunks, padding included.
  static uint64_t ModelBytes(const Statistics& statistics) {
    const double elements =
        static_cast<double>(statistics.parameters) / (1 - statistics.waste_ratio);
    return static_cast<uint64_t>(std::llround(elements)) * SizeOf(DataType::kBFloat16);
  }

 private:
  static uint64_t PerStep(uint64_t few, uint64_t many) {
    constexpr uint64_t kSteps = kManySteps - kFewSteps;
    EXPECT_EQ((many - few) % kSteps, 0u);
    return (many - few) / kSteps;
  }
  // What rank 0 received of it by all-gathers.
  static uint64_t GatheredOf(const SyntheticResult& result, size_t peer) {
    constexpr auto kAllGather = static_cast<size_t>(collectives::OpKind::kAllGather);
    const auto& peers = result.exchanged[0].traffic[kAllGather].peers;
    return peer < peers.size() ? peers[peer].bytes_received : 0;
  }
};

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_STEP_BYTES_FIXTURE_H_
