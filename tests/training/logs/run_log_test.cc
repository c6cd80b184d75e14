#include "training/logs/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/base/temporary_folder.h"

namespace geminid::trainer {
namespace {

using nlohmann::json;
using testing::Pair;
using testing::UnorderedElementsAre;

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

StepRecord Step(uint64_t step) {
  return {.step = step,
          .time = kStart + absl::Milliseconds(250 * static_cast<int64_t>(step)),
          .loss = 2.5,
          .gradient_norm = 0.125,
          .learning_rate = 1e-3,
          .loss_scale = 4,
          .tokens = 512 * step,
          .seconds = 0.25,
          .tokens_per_second = 2048,
          .flops_per_second = 1e9};
}

std::string TextOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<json> LinesOf(const std::string& path) {
  std::vector<json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

// --- decodes an event file bit by bit, from the format's definition ---

uint32_t Crc32cByBits(const std::string& data) {
  uint32_t crc = 0xffffffff;
  for (const char c : data) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ~crc;
}

uint32_t Masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8; }

template <typename T>
T At(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

std::vector<std::string> RecordsOf(const std::string& file) {
  std::vector<std::string> records;
  for (size_t at = 0; at < file.size();) {
    const auto length = At<uint64_t>(file, at);
    EXPECT_EQ(At<uint32_t>(file, at + 8), Masked(Crc32cByBits(file.substr(at, 8))));
    records.push_back(file.substr(at + 12, length));
    EXPECT_EQ(At<uint32_t>(file, at + 12 + length), Masked(Crc32cByBits(records.back())));
    at += 16 + length;
  }
  return records;
}

// The fields of a message by number: numbers as their bits, others as bytes.
std::multimap<int, std::string> FieldsOf(const std::string& message) {
  std::multimap<int, std::string> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(message.at(at++));
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t tag = varint();
    uint64_t length = 0;
    switch (tag & 7) {
      case 0: {
        const uint64_t value = varint();
        fields.emplace(tag >> 3, std::string(reinterpret_cast<const char*>(&value), 8));
        continue;
      }
      case 1:
        length = 8;
        break;
      case 2:
        length = varint();
        break;
      case 5:
        length = 4;
        break;
      default:
        ADD_FAILURE() << "wire type " << (tag & 7);
    }
    fields.emplace(tag >> 3, message.substr(at, length));
    at += length;
  }
  return fields;
}

std::map<std::string, float> ScalarsOf(const std::string& event) {
  std::map<std::string, float> scalars;
  const auto summary = FieldsOf(FieldsOf(event).find(5)->second);
  for (const auto& [field, entry] : summary) {
    const auto value = FieldsOf(entry);
    scalars[value.find(1)->second] = At<float>(value.find(2)->second, 0);
  }
  return scalars;
}

class Log : public testing::Test {
 protected:
  std::string OnlyEventFile() const {
    std::string found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "board")) {
      EXPECT_EQ(found, "");
      found = entry.path();
    }
    return found;
  }
  const base::TemporaryFolder folder_;
};

TEST_F(Log, OfSteps_IsALineOfJsonEach) {
  auto log = RunLog::Open({.lines = folder_ / "run.jsonl"}, kStart);
  ASSERT_TRUE(log.ok()) << log.status();
  StepRecord second = Step(2);
  second.validation_loss = 2.75;
  second.epoch = 1.5;
  second.loss = std::nan("");
  second.overflow = true;
  ASSERT_TRUE(log->Add(Step(1)).ok());
  EXPECT_EQ(LinesOf(folder_ / "run.jsonl").size(), 1u);  // at once
  ASSERT_TRUE(log->Add(second).ok());
  const std::vector<json> lines = LinesOf(folder_ / "run.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  const json expected = {{"step", 1},
                         {"time", 1'700'000'000.25},
                         {"loss", 2.5},
                         {"gradient_norm", 0.125},
                         {"learning_rate", 1e-3},
                         {"loss_scale", 4.0},
                         {"overflow", false},
                         {"tokens", 512},
                         {"seconds", 0.25},
                         {"tokens_per_second", 2048.0},
                         {"flops_per_second", 1e9}};
  EXPECT_EQ(lines[0], expected);
  EXPECT_TRUE(lines[1]["loss"].is_null());
  EXPECT_EQ(lines[1]["validation_loss"], 2.75);
  EXPECT_EQ(lines[1]["epoch"], 1.5);
  EXPECT_EQ(lines[1]["overflow"], true);
}

TEST_F(Log, OfARunThatGoesOn_IsAppendedTo) {
  for (const bool appends : {true, true, true}) {
    auto log = RunLog::Open({.lines = folder_ / "run.jsonl", .appends = appends}, kStart);
    ASSERT_TRUE(log->Add(Step(1)).ok());
    ASSERT_TRUE(log->Add(Step(2)).ok());
  }
  EXPECT_EQ(LinesOf(folder_ / "run.jsonl").size(), 6u);
}

TEST_F(Log, ThatEndsWithinALine_GoesOnInANewOne) {
  folder_.Write("run.jsonl", "{}\n{\"step\":4,\"ti");
  auto log = RunLog::Open({.lines = folder_ / "run.jsonl", .appends = true}, kStart);
  ASSERT_TRUE(log->Add(Step(4)).ok());
  const std::string text = TextOf(folder_ / "run.jsonl");
  EXPECT_THAT(text, testing::StartsWith("{}\n{\"step\":4,\"ti\n{"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
}

TEST_F(Log, OfAnotherRun_IsNeitherEmptiedNorWrittenTo) {
  folder_.Write("run.jsonl", "{}\n");
  const auto log = RunLog::Open({.lines = folder_ / "run.jsonl"}, kStart);
  EXPECT_EQ(log.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(TextOf(folder_ / "run.jsonl"), "{}\n");
  folder_.Write("empty.jsonl", "");
  EXPECT_TRUE(RunLog::Open({.lines = folder_ / "empty.jsonl"}, kStart).ok());
}

TEST_F(Log, ForTensorBoard_IsRecordsWithTheirChecksumsAndScalars) {
  auto log = RunLog::Open({.tensorboard = folder_ / "board"}, kStart);
  ASSERT_TRUE(log.ok()) << log.status();
  StepRecord second = Step(300);  // a number of two bytes
  second.validation_loss = 2.75;
  ASSERT_TRUE(log->Add(Step(1)).ok());
  ASSERT_TRUE(log->Add(second).ok());
  const std::string path = OnlyEventFile();
  EXPECT_THAT(path, testing::HasSubstr("/events.out.tfevents.1700000000."));
  const std::vector<std::string> records = RecordsOf(TextOf(path));
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(FieldsOf(records[0]).find(3)->second, "brain.Event:2");
  EXPECT_EQ(At<double>(FieldsOf(records[1]).find(1)->second, 0), 1'700'000'000.25);
  EXPECT_EQ(At<uint64_t>(FieldsOf(records[1]).find(2)->second, 0), 1u);
  EXPECT_EQ(At<uint64_t>(FieldsOf(records[2]).find(2)->second, 0), 300u);
  EXPECT_THAT(ScalarsOf(records[1]),
              UnorderedElementsAre(
                  Pair("loss/train", 2.5F), Pair("optimizer/gradient_norm", 0.125F),
                  Pair("optimizer/learning_rate", 1e-3F), Pair("optimizer/loss_scale", 4.0F),
                  Pair("speed/tokens_per_second", 2048.0F), Pair("speed/flops_per_second", 1e9F)));
  EXPECT_EQ(ScalarsOf(records[2])["loss/validation"], 2.75F);
}

TEST_F(Log, ThatCannotBeWritten_NamesThePath) {
  EXPECT_EQ(RunLog::Open({.lines = folder_ / "no/run.jsonl"}, kStart).status().code(),
            absl::StatusCode::kNotFound);
  const auto folder = RunLog::Open({.lines = folder_.path()}, kStart);
  EXPECT_EQ(folder.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(folder.status().message()), testing::HasSubstr(folder_.path()));
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(RunLog::Open({.lines = folder_ / "pipe"}, kStart).status().code(),
            absl::StatusCode::kInvalidArgument);
  const std::string file = folder_.Write("file", "");
  EXPECT_FALSE(RunLog::Open({.tensorboard = file}, kStart).ok());
}

}  // namespace
}  // namespace geminid::trainer
