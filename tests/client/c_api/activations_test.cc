// Activations in host memory through the C interface.
#include <cstdint>
#include <string>
#include <vector>

#include "tests/client/c_api/c_api_fixture.h"

namespace geminid::c_api {
namespace {

using ::testing::HasSubstr;

class ActivationsTest : public CApiTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Connect());
    ASSERT_NO_FATAL_FAILURE(MakeEngine());
  }

  geminid_code Make(uint64_t place_bytes, uint32_t places) {
    geminid_activation_store_options options;
    geminid_activation_store_options_init(&options, sizeof options);
    options.place_bytes = place_bytes;
    options.places = places;
    return geminid_engine_make_activation_store(engine_, &options, error_);
  }

  uint64_t Save(const std::vector<float>& values) {
    uint64_t item = 0;
    EXPECT_EQ(geminid_engine_save_activation(engine_, values.data(), sizeof(float) * values.size(),
                                             0, &item, error_),
              GEMINID_OK)
        << Message();
    return item;
  }

  geminid_code Load(uint64_t item, std::vector<float>* values) {
    return geminid_engine_load_activation(engine_, item, values->data(),
                                          sizeof(float) * values->size(), 0, error_);
  }

  std::string Statistics() {
    char* json = nullptr;
    EXPECT_EQ(geminid_engine_statistics(engine_, &json, error_), GEMINID_OK) << Message();
    std::string text = json == nullptr ? "" : json;
    geminid_free(json);
    return text;
  }
};

TEST_F(ActivationsTest, ItemsOfAStep_ComeBackInAnyOrder_AndTheStepIsThatWithoutThem) {
  ASSERT_EQ(Make(4096, 2), GEMINID_OK) << Message();
  std::vector<uint64_t> items;
  for (int i = 0; i < 10; ++i) items.push_back(Save(std::vector<float>(3000, 1.0f + i)));
  ASSERT_NO_FATAL_FAILURE(Descend());
  for (const int i : {3, 9, 0, 3, 8}) {
    std::vector<float> back(3000);
    ASSERT_EQ(Load(items[i], &back), GEMINID_OK) << Message();
    EXPECT_EQ(back, std::vector<float>(3000, 1.0f + i));
  }
  EXPECT_EQ(FirstOf(kA, GEMINID_EVALUATE), 0.5f);
  EXPECT_THAT(Statistics(), HasSubstr("\"activation_place_bytes\": 8192"));
  EXPECT_THAT(Statistics(), HasSubstr("\"activation_items\": 10"));
  for (const uint64_t item : items) {
    EXPECT_EQ(geminid_engine_drop_activation(engine_, item, error_), GEMINID_OK) << Message();
  }
  EXPECT_THAT(Statistics(), HasSubstr("\"activation_items\": 0"));
}

TEST_F(ActivationsTest, WithoutAStore_AreRefused) {
  std::vector<float> values(10);
  uint64_t item = 5;
  EXPECT_EQ(geminid_engine_save_activation(engine_, values.data(), 40, 0, &item, error_),
            GEMINID_FAILED_PRECONDITION);
  EXPECT_THAT(Message(), HasSubstr("geminid_engine_make_activation_store"));
  EXPECT_EQ(item, 5u);
  EXPECT_EQ(Load(1, &values), GEMINID_FAILED_PRECONDITION);
  EXPECT_EQ(geminid_engine_drop_activation(engine_, 1, error_), GEMINID_FAILED_PRECONDITION);
  EXPECT_FALSE(IsFinal());
}

TEST_F(ActivationsTest, StoreThatCannotBe_IsRefused_AndAnotherOneCanBeMade) {
  EXPECT_EQ(Make(0, 2), GEMINID_INVALID_ARGUMENT);
  EXPECT_EQ(Make(4096, 1), GEMINID_INVALID_ARGUMENT);
  EXPECT_EQ(Make(~uint64_t{0}, 2), GEMINID_RESOURCE_EXHAUSTED);
  EXPECT_THAT(Message(), HasSubstr("device arena of 1.0 MiB"));
  geminid_activation_store_options older;
  geminid_activation_store_options_init(&older, sizeof older);
  older.struct_size = 8;
  EXPECT_EQ(geminid_engine_make_activation_store(engine_, &older, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_EQ(geminid_engine_make_activation_store(engine_, nullptr, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_FALSE(IsFinal());
  EXPECT_EQ(Make(4096, 2), GEMINID_OK) << Message();
  EXPECT_EQ(Make(4096, 2), GEMINID_FAILED_PRECONDITION);
  ASSERT_NO_FATAL_FAILURE(Descend());
}

TEST_F(ActivationsTest, ItemsOfAnEngineThatWasFreed_AreDroppedWithIt) {
  ASSERT_EQ(Make(4096, 2), GEMINID_OK) << Message();
  std::vector<float> values(10);
  const uint64_t item = Save(values);
  geminid_engine* const handle = engine_;
  geminid_engine_free(&engine_);
  EXPECT_EQ(geminid_engine_drop_activation(handle, item, error_), GEMINID_INVALID_ARGUMENT);
  EXPECT_EQ(geminid_engine_drop_activation(nullptr, item, nullptr), GEMINID_INVALID_ARGUMENT);
}

TEST_F(ActivationsTest, NullArguments_AreRefused) {
  ASSERT_EQ(Make(4096, 2), GEMINID_OK) << Message();
  float value = 0;
  uint64_t item = 0;
  EXPECT_EQ(geminid_engine_save_activation(engine_, nullptr, 4, 0, &item, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_EQ(geminid_engine_save_activation(engine_, &value, 4, 0, nullptr, error_),
            GEMINID_INVALID_ARGUMENT);
  EXPECT_EQ(geminid_engine_load_activation(engine_, 1, nullptr, 4, 0, error_),
            GEMINID_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace geminid::c_api
