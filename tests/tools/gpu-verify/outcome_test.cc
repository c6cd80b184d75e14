#include "tools/gpu-verify/outcome.h"

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace geminid::gpu_verify {
namespace {

Report Sample(Outcome outcome) { return {"G0", "is it so", std::move(outcome), 1.5}; }

TEST(Line, EachVerdict_ReadsAsDocumented) {
  EXPECT_EQ(Line(Sample(Pass("3 of 3"))), "G0 is it so: 3 of 3, pass");
  EXPECT_EQ(Line(Sample(Fail("2 of 3", "one lost"))), "G0 is it so: 2 of 3, fail (one lost)");
  EXPECT_EQ(Line(Sample(NotApplicable("no NVML"))), "G0 is it so: not applicable (no NVML)");
}

TEST(Line, TextWithLineBreaks_StaysOneLine) {
  EXPECT_EQ(Line(Sample(Fail("a\nb", "c\td"))), "G0 is it so: a b, fail (c d)");
}

google::protobuf::Struct ParseJson(const std::string& json) {
  google::protobuf::Struct object;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &object);
  EXPECT_TRUE(status.ok()) << status.ToString() << "\n" << json;
  return object;
}

TEST(Json, Reports_ParseToTheirFields) {
  Machine machine;
  machine.date = "2026-01-02T03:04:05Z";
  machine.gpu = "Fake \"GPU\" \\ 1";
  machine.cuda_version = 12040;
  machine.device_bytes = 1ULL << 37;
  machine.quick = true;
  Outcome outcome = Fail("2 \"of\" 3", "line\nbreak");
  outcome.numbers = {{"kills", 3}, {"seconds", 0.1}};
  const auto object = ParseJson(Json(machine, {Sample(outcome), Sample(Pass("x"))})).fields();
  EXPECT_EQ(object.at("program").string_value(), "geminid-gpu-verify");
  EXPECT_EQ(object.at("format").number_value(), 1);
  EXPECT_EQ(object.at("date").string_value(), machine.date);
  EXPECT_EQ(object.at("gpu").string_value(), machine.gpu);
  EXPECT_EQ(object.at("cuda_version").number_value(), 12040);
  EXPECT_EQ(object.at("device_bytes").number_value(), static_cast<double>(1ULL << 37));
  EXPECT_TRUE(object.at("quick").bool_value());
  for (const char* key : {"driver", "persistence", "kernel"}) {
    EXPECT_TRUE(object.at(key).has_string_value()) << key;
  }
  for (const char* key : {"processors", "available_host_bytes"}) {
    EXPECT_TRUE(object.at(key).has_number_value()) << key;
  }
  const auto& probes = object.at("probes").list_value();
  ASSERT_EQ(probes.values_size(), 2);
  const auto& first = probes.values(0).struct_value().fields();
  EXPECT_EQ(first.at("id").string_value(), "G0");
  EXPECT_EQ(first.at("question").string_value(), "is it so");
  EXPECT_EQ(first.at("verdict").string_value(), "fail");
  EXPECT_EQ(first.at("figure").string_value(), "2 \"of\" 3");
  EXPECT_EQ(first.at("reason").string_value(), "line break");
  EXPECT_EQ(first.at("seconds").number_value(), 1.5);
  const auto& numbers = first.at("numbers").struct_value().fields();
  EXPECT_EQ(numbers.at("kills").number_value(), 3);
  EXPECT_EQ(numbers.at("seconds").number_value(), 0.1);
}

TEST(Json, NumberThatIsNone_IsNull) {
  Outcome outcome = Pass("");
  outcome.numbers = {{"rate", std::numeric_limits<double>::infinity()},
                     {"ratio", std::numeric_limits<double>::quiet_NaN()}};
  const auto object = ParseJson(Json({}, {Sample(outcome)})).fields();
  const auto& probe = object.at("probes").list_value().values(0).struct_value().fields();
  EXPECT_TRUE(probe.at("numbers").struct_value().fields().at("rate").has_null_value());
  EXPECT_TRUE(probe.at("numbers").struct_value().fields().at("ratio").has_null_value());
}

TEST(Json, NoReports_IsStillAnObject) {
  EXPECT_EQ(ParseJson(Json({}, {})).fields().at("probes").list_value().values_size(), 0);
}

TEST(Serialization, CutOffText_IsRefused) {
  Outcome outcome = Pass("figure");
  outcome.numbers = {{"a", 1}, {"b", 2}};
  const std::string text = Serialize(outcome);
  ASSERT_TRUE(Deserialize(text).has_value());
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(Deserialize(text.substr(0, length)).has_value()) << length;
  }
  EXPECT_FALSE(Deserialize("9\nfigure\nreason\nend\n").has_value());
}

TEST(Words, SizesAndTimes_HaveAFittingUnit) {
  EXPECT_EQ(Bytes(2.0 * (1 << 20)), "2 MiB");
  EXPECT_EQ(Bytes(1.5 * (1 << 30)), "1.5 GiB");
  EXPECT_EQ(Seconds(12.34e-6), "12.3 us");
  EXPECT_EQ(Seconds(0.00456), "4.56 ms");
  EXPECT_EQ(Seconds(1.234), "1.23 s");
}

}  // namespace
}  // namespace geminid::gpu_verify
