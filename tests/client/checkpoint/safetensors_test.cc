#include "client/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
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

// Each would fill a file of 16 bytes of data if it were sound.
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
        BadHeader{"no JSON", "{\"a\": ", "line 1"}, BadHeader{"no object", "[1]", "no JSON object"},
        BadHeader{"no tensor", R"({"a": 3})", "tensor 'a' has no dtype"},
        BadHeader{"type", R"({"a":{"dtype":"F8","shape":[4],"data_offsets":[0,16]}})", "'F8'"},
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
                  "cut short"},
        BadHeader{"too long", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
                  "describes"}));

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
