#include "client/checkpoint/run_record.h"

#include <gtest/gtest.h>

#include <string>

namespace geminid::checkpoint {
namespace {

RunRecord Example() {
  RunRecord record;
  record.step = 20;
  record.updates = 19;
  record.loss_scaler = {.scale = 65536.5, .good_steps = 7, .overflows = 1};
  record.run = {.data_position = ~uint64_t{0}, .random_state = {1, 2, 3, ~uint64_t{0}}};
  record.ranks = 2;
  record.optimizer = "lion";
  return record;
}

TEST(RunRecord_Text, WrittenThenRead_IsTheSame) {
  const absl::StatusOr<RunRecord> read = ReadRecord(ToText(Example()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->step, 20u);
  EXPECT_EQ(read->updates, 19u);
  EXPECT_EQ(read->loss_scaler, Example().loss_scaler);
  EXPECT_EQ(read->run, Example().run);
  EXPECT_EQ(read->ranks, 2u);
  EXPECT_EQ(read->optimizer, "lion");
}

TEST(RunRecord_Text, EntryThatIsMissing_IsNamed) {
  for (const char* key : {"step", "updates", "loss_scale", "loss_scale_good_steps", "data_position",
                          "random_state", "ranks"}) {
    std::string text = ToText(Example());
    text.replace(text.find(std::string("\"") + key + "\""), 2, "\"X");
    const absl::Status status = ReadRecord(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(std::string(status.message()).find(key), std::string::npos) << status;
  }
}

TEST(RunRecord_Text, WithoutHealth_IsHealthy) {
  RunRecord record = Example();
  record.healthy = false;
  std::string text = ToText(record);
  EXPECT_FALSE(ReadRecord(text)->healthy);
  text.replace(text.find("\"healthy\""), 9, "\"unknown\"");
  EXPECT_TRUE(ReadRecord(text)->healthy);
}

TEST(RunRecord_Text, OtherFormat_IsRefused) {
  std::string text = ToText(Example());
  text.replace(text.find("\"format\": 1"), 11, "\"format\": 2");
  EXPECT_FALSE(ReadRecord(text).ok());
  EXPECT_FALSE(ReadRecord("").ok());
}

}  // namespace
}  // namespace geminid::checkpoint
