#include "client/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

namespace geminid::checkpoint {
namespace {

using ::testing::Test;

std::string JsonOf(const Header& header) { return Encode(header).substr(kLengthBytes); }

TEST(Safetensors_Header, WrittenThenRead_IsTheSame) {
  const absl::StatusOr<Header> header =
      LayOut({{.name = "a", .type = ElementType::kFloat32, .shape = {2, 3}},
              {.name = "b", .type = ElementType::kBFloat16, .shape = {5}},
              {.name = "scalar", .type = ElementType::kUint64, .shape = {}}},
             {{"format", "pt"}});
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->data_bytes, 24u + 10u + 8u);
  EXPECT_EQ(header->data_begin % 64, 0u);
  EXPECT_EQ(Encode(*header).size(), header->data_begin);

  const absl::StatusOr<Header> read =
      Decode(JsonOf(*header), header->data_begin + header->data_bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->tensors.size(), 3u);
  EXPECT_EQ(read->data_begin, header->data_begin);
  EXPECT_EQ(read->metadata.at("format"), "pt");
  EXPECT_EQ(read->Find("b")->offset, 24u);
  EXPECT_EQ(read->Find("b")->bytes, 10u);
  EXPECT_EQ(read->Find("scalar")->elements(), 1u);
  EXPECT_EQ(read->Find("c"), nullptr);
}

TEST(Safetensors_LayOut, TwoTensorsOfOneName_AreRefused) {
  EXPECT_EQ(LayOut({{.name = "a", .shape = {1}}, {.name = "a", .shape = {1}}}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

struct BadHeader {
  const char* what;
  const char* json;
  const char* message;
};

class Safetensors_Decode : public ::testing::TestWithParam<BadHeader> {};

// Each header would fit a file with 16 bytes of data if it were sound.
TEST_P(Safetensors_Decode, BadHeader_IsRefusedWithTheReason) {
  const std::string json = GetParam().json;
  const absl::StatusOr<Header> header = Decode(json, kLengthBytes + json.size() + 16);
  ASSERT_FALSE(header.ok()) << GetParam().what;
  EXPECT_EQ(header.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(std::string(header.status().message()).find(GetParam().message), std::string::npos)
      << header.status();
}

INSTANTIATE_TEST_SUITE_P(
    All, Safetensors_Decode,
    ::testing::Values(
        BadHeader{"no JSON", "{\"a\": ", "line 1"},
        BadHeader{"no object", "[1]", "not a JSON object"},
        BadHeader{"no tensor", R"({"a": 3})", "tensor 'a' has no dtype"},
        BadHeader{"no name", R"({"a":{"dtype":8,"shape":[4],"data_offsets":[0,16]}})", "no dtype"},
        BadHeader{"size", R"({"a":{"dtype":"I64","shape":[4],"data_offsets":[0,16]}})", "shape"},
        BadHeader{"half a byte", R"({"a":{"dtype":"F4","shape":[33],"data_offsets":[0,16]}})",
                  "shape"},
        BadHeader{"shape", R"({"a":{"dtype":"F32","shape":[5],"data_offsets":[0,16]}})", "shape"},
        BadHeader{"negative", R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})", "'a'"},
        BadHeader{"fraction", R"({"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}})",
                  "'a'"},
        BadHeader{"overflow",
                  R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}})",
                  "shape"},
        BadHeader{"backwards", R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})", "'a'"},
        BadHeader{"one offset", R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16]}})", "'a'"},
        BadHeader{"hole", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[4,16]}})",
                  "begins at byte 4"},
        BadHeader{"overlap",
                  R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
                  R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                  "'b' begins at byte 8"},
        BadHeader{"too short", R"({"a":{"dtype":"F32","shape":[5],"data_offsets":[0,20]}})",
                  "truncated"},
        BadHeader{"too long", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
                  "describes"}));

// Every dtype of the format with 64 elements, and an unknown one.
TEST(Safetensors_Types, ThatAreNotComputedIn_AreDescribed) {
  const std::pair<const char*, uint64_t> kTypes[] = {
      {"BOOL", 64},        {"F4", 32},         {"F6_E2M3", 48}, {"F6_E3M2", 48}, {"U8", 64},
      {"I8", 64},          {"F8_E5M2", 64},    {"F8_E4M3", 64}, {"F8_E8M0", 64}, {"F8_E4M3FNUZ", 64},
      {"F8_E5M2FNUZ", 64}, {"I16", 128},       {"U16", 128},    {"F16", 128},    {"BF16", 128},
      {"I32", 256},        {"U32", 256},       {"F32", 256},    {"C64", 512},    {"F64", 512},
      {"I64", 512},        {"U64", 512},       {"Q3_NEW", 24}};
  std::string json = "{";
  uint64_t at = 0;
  for (const auto& [type, bytes] : kTypes) {
    json += std::string(at == 0 ? "" : ",") + "\"" + type + "\":{\"dtype\":\"" + type +
            "\",\"shape\":[8,8],\"data_offsets\":[" + std::to_string(at) + "," +
            std::to_string(at + bytes) + "]}";
    at += bytes;
  }
  json += "}";
  const absl::StatusOr<Header> header = Decode(json, kLengthBytes + json.size() + at);
  ASSERT_TRUE(header.ok()) << header.status();
  for (const auto& [type, bytes] : kTypes) {
    const TensorEntry* const tensor = header->Find(type);
    ASSERT_NE(tensor, nullptr) << type;
    EXPECT_EQ(tensor->bytes, bytes) << type;
    EXPECT_EQ(tensor->elements(), 64u) << type;
    EXPECT_EQ(tensor->type_name(), type);
  }
}

double SecondsToDecode(int tensors) {
  std::string json = "{";
  for (int i = 0; i < tensors; ++i) {
    json += std::string(i == 0 ? "" : ",") + "\"model.layers.experts." + std::to_string(i) +
            ".weight\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" +
            std::to_string(4 * i) + "," + std::to_string(4 * i + 4) + "]}";
  }
  json += "}";
  double least = 1e9;
  for (int trial = 0; trial < 3; ++trial) {
    const std::clock_t began = std::clock();  // processor time, not wall time
    const auto header = Decode(json, kLengthBytes + json.size() + 4 * static_cast<uint64_t>(tensors));
    EXPECT_TRUE(header.ok()) << header.status();
    least = std::min(least, static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC);
  }
  return least;
}

// A loop over all names for each name would take forty times longer. Cache misses may take up to
// four times longer, if other processes use the caches too.
TEST(Safetensors_Decode_Time, OfFortyTimesTheTensors_IsLessThanTenTimesMorePerTensor) {
  EXPECT_LT(SecondsToDecode(40'000), 40 * 10 * SecondsToDecode(1'000));
}

TEST(Safetensors_HeaderLength, LongerThanTheFile_IsRefused) {
  std::string bytes(kLengthBytes, '\0');
  const uint64_t length = 100;
  std::memcpy(bytes.data(), &length, sizeof(length));
  EXPECT_EQ(*HeaderLength(bytes, kLengthBytes + 100), 100u);
  EXPECT_FALSE(HeaderLength(bytes, kLengthBytes + 99).ok());
  EXPECT_FALSE(HeaderLength("1234567", 7).ok());
  EXPECT_FALSE(HeaderLength(std::string(kLengthBytes, '\xff'), ~uint64_t{0}).ok());
}

}  // namespace
}  // namespace geminid::checkpoint
