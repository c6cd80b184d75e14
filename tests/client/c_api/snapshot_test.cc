// Snapshots by callback, through the C interface.
#include "geminid/c_checkpoint.h"

#include <cstdint>
#include <future>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/client/c_api/c_api_fixture.h"

namespace geminid::c_api {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// The values that a sink received, by parameter and kind, and how often each came.
class Taken {
 public:
  static int Take(void* context, uint32_t parameter, int32_t kind, uint64_t offset,
                  const float* values, uint64_t count) {
    auto& taken = *static_cast<Taken*>(context);
    const std::lock_guard<std::mutex> lock(taken.mutex_);
    Array& array = taken.arrays[{parameter, kind}];
    array.values.resize(kElements);
    array.times.resize(kElements);
    for (uint64_t i = 0; i < count; ++i) {
      array.values.at(offset + i) = values[i];
      ++array.times.at(offset + i);
    }
    return 0;
  }

  struct Array {
    std::vector<float> values;
    std::vector<int> times;
  };
  std::map<std::pair<uint32_t, int32_t>, Array> arrays;

 private:
  std::mutex mutex_;
};

class SnapshotTest : public CApiTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Connect());
    geminid_optimizer adam;
    geminid_optimizer_init(&adam, sizeof adam, GEMINID_ADAM);
    ASSERT_EQ(Create(EngineOptions(&adam), Parameters()), GEMINID_OK) << Message();
    ASSERT_NO_FATAL_FAILURE(InitializeWith(0));
    ASSERT_NO_FATAL_FAILURE(Descend());
  }

  std::vector<float> Read(uint32_t parameter, int32_t kind) {
    std::vector<float> values(kElements);
    EXPECT_EQ(geminid_engine_read_shard(engine_, parameter, kind, 0, values.data(), kElements,
                                        error_),
              GEMINID_OK)
        << Message();
    return values;
  }

  geminid_code Start(geminid_sink* sink, void* context) {
    return geminid_engine_start_snapshot(engine_, sink, context, error_);
  }
};

TEST_F(SnapshotTest, SnapshotDuringTheNextStep_HasTheStateOfTheOneBefore) {
  std::map<std::pair<uint32_t, int32_t>, std::vector<float>> before;
  for (const uint32_t parameter : {kA, kB}) {
    for (int32_t kind = GEMINID_VALUE; kind <= GEMINID_EXP_AVG_SQ; ++kind) {
      before[{parameter, kind}] = Read(parameter, kind);
    }
  }
  Taken taken;
  ASSERT_EQ(Start(&Taken::Take, &taken), GEMINID_OK) << Message();
  ASSERT_NO_FATAL_FAILURE(Descend());
  ASSERT_EQ(geminid_engine_wait_snapshot(engine_, error_), GEMINID_OK) << Message();
  ASSERT_THAT(taken.arrays, SizeIs(before.size()));
  for (const auto& [of, array] : taken.arrays) {
    EXPECT_EQ(array.values, before.at(of)) << "parameter " << of.first << ", kind " << of.second;
    EXPECT_THAT(array.times, ::testing::Each(1));
  }
  EXPECT_NE(Read(kA, GEMINID_VALUE), before.at({kA, GEMINID_VALUE})) << "the step was made";
}

TEST_F(SnapshotTest, SinkThatFails_EndsItsSnapshotAlone) {
  const auto fail = [](void*, uint32_t, int32_t, uint64_t, const float*, uint64_t) { return 7; };
  ASSERT_EQ(Start(fail, nullptr), GEMINID_OK) << Message();
  EXPECT_EQ(geminid_engine_wait_snapshot(engine_, error_), GEMINID_CANCELLED);
  EXPECT_THAT(Message(), HasSubstr("the sink returned 7 for parameter "));
  EXPECT_FALSE(IsFinal());
  ASSERT_NO_FATAL_FAILURE(Descend());
  Taken taken;
  ASSERT_EQ(Start(&Taken::Take, &taken), GEMINID_OK) << Message();
  ASSERT_EQ(geminid_engine_wait_snapshot(engine_, error_), GEMINID_OK) << Message();
  EXPECT_EQ((taken.arrays[{kA, GEMINID_VALUE}].values), Read(kA, GEMINID_VALUE));
}

TEST_F(SnapshotTest, SecondSnapshotMeanwhile_IsRefused) {
  std::promise<void> go;
  std::shared_future<void> may_go = go.get_future();
  const auto wait = [](void* context, uint32_t, int32_t, uint64_t, const float*, uint64_t) {
    static_cast<std::shared_future<void>*>(context)->wait();
    return 0;
  };
  ASSERT_EQ(Start(wait, &may_go), GEMINID_OK) << Message();
  EXPECT_EQ(Start(wait, &may_go), GEMINID_FAILED_PRECONDITION);
  EXPECT_THAT(Message(), HasSubstr("a snapshot is still being taken"));
  go.set_value();
  EXPECT_EQ(geminid_engine_wait_snapshot(engine_, error_), GEMINID_OK) << Message();
}

TEST_F(SnapshotTest, Null_IsRefused) {
  EXPECT_EQ(Start(nullptr, nullptr), GEMINID_INVALID_ARGUMENT);
  EXPECT_EQ(geminid_engine_start_snapshot(nullptr, &Taken::Take, nullptr, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_EQ(geminid_engine_wait_snapshot(nullptr, error_), GEMINID_INVALID_ARGUMENT);
  EXPECT_EQ(geminid_engine_wait_snapshot(engine_, error_), GEMINID_OK) << "none was begun";
}

}  // namespace
}  // namespace geminid::c_api
