// Parameters that are packed together if they are used together.
#include <gtest/gtest.h>

#include "tests/client/zero/engine_fixture.h"

namespace geminid::zero {
namespace {

// Blocks of four operators each. `units`: each block is gathered as a whole.
SyntheticModel Blocks(bool units) {
  SyntheticModel model;
  for (uint32_t block = 0; block < 6; ++block) {
    std::vector<uint32_t> parameters;
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {64}, {64, 192}, {192}, {64, 64}, {64}, {64, 256}, {256}, {256, 64}, {64}}) {
      Parameter parameter;
      parameter.name = "block " + std::to_string(block) + " " + std::to_string(parameters.size());
      parameter.shape = shape;
      if (units) parameter.unit = block;
      if (shape.size() == 1 && block % 2 == 0) parameter.data_type = DataType::kFloat32;
      parameters.push_back(static_cast<uint32_t>(model.parameters.size()));
      model.parameters.push_back(parameter);
    }
    model.operators.push_back(parameters);
  }
  return model;
}

class EngineUnitsTest : public EngineTest {};

TEST_F(EngineUnitsTest, EveryPlacementAndWorldSize_GivesTheBitsOfDenseTraining) {
  run_.model = Blocks(true);
  for (int world_size : {1, 2, 4}) {
    run_.world_size = world_size;
    const std::vector<std::vector<float>> expected = TrainDensely(run_);
    for (auto [placement, arena] : {std::pair{Placement::kAuto, uint64_t{640} << 10},
                                    std::pair{Placement::kCpu, uint64_t{640} << 10},
                                    std::pair{Placement::kDevice, kAmpleArena}}) {
      SCOPED_TRACE(::testing::Message() << "world " << world_size << ", placement "
                                        << static_cast<int>(placement) << ", arena " << arena);
      run_.options.placement = placement;
      run_.arena_bytes = arena;
      ExpectSameBits(MustTrain().weights, expected);
    }
  }
}

TEST_F(EngineUnitsTest, BlocksAsUnits_HoldLessOfTheDeviceAndMoveLess) {
  run_.options.placement = Placement::kCpu;
  run_.arena_bytes = 2 << 20;
  run_.model = Blocks(false);
  const Statistics without = MustTrain().statistics[0];
  run_.model = Blocks(true);
  const Statistics with = MustTrain().statistics[0];
  EXPECT_LT(with.peak_model_bytes, without.peak_model_bytes);
  EXPECT_LT(with.host_to_device_bytes, without.host_to_device_bytes);
}

}  // namespace
}  // namespace geminid::zero
