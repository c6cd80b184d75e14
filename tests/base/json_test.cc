#include "base/json.h"

#include <gtest/gtest.h>

namespace geminid::base {
namespace {

struct BadJson {
  const char* text;
  int line;
  int column;
};

TEST(Json, Malformed_SaysWhere) {
  const BadJson cases[] = {
      {"", 1, 1},
      {"{", 1, 2},
      {"{}x", 1, 3},
      {"{\"a\" 1}", 1, 6},
      {"{\"a\": }", 1, 7},
      {"{\"a\": 1,}", 1, 9},
      {"{\n  \"a\": 1\n  \"b\": 2\n}", 3, 3},
      {"{\"a\": 1, \"a\": 2}", 1, 10},
      {"{a: 1}", 1, 2},
      {"[1 2]", 1, 4},
      {"\"abc", 1, 1},
      {"\"a\nb\"", 1, 3},
      {"\"\\x\"", 1, 3},
      {"\"\\u12g4\"", 1, 6},
      {"\"\\ud800\"", 1, 8},
      {"\"\\udc00\"", 1, 7},
      {"yes", 1, 1},
      {"+1", 1, 1},
      {"01", 1, 3},
      {"1.", 1, 1},
      {"1e999", 1, 1},
      {"[\"\xff\"]", 1, 3},
      {"{} // note", 1, 4},
      {"\xef\xbb\xbf{}", 1, 1},
  };
  for (const BadJson& bad : cases) {
    JsonValue value;
    JsonError error;
    ASSERT_FALSE(ParseJson(bad.text, &value, &error)) << bad.text;
    EXPECT_EQ(error.position.line, bad.line) << bad.text << ": " << error.problem;
    EXPECT_EQ(error.position.column, bad.column) << bad.text << ": " << error.problem;
  }
}

TEST(Json, Good_IsATreeWithPositions) {
  JsonValue value;
  JsonError error;
  ASSERT_TRUE(ParseJson("{\"a\": [1, true],\n \"b\": {\"c\": \"x\\n\\u00e9\\ud83d\\ude00\"}}",
                        &value, &error))
      << error.problem;
  ASSERT_EQ(value.type, JsonValue::Type::kObject);
  ASSERT_EQ(value.members.size(), 2u);
  EXPECT_EQ(value.members[0].value.items[0].text, "1");
  EXPECT_TRUE(value.members[0].value.items[1].boolean);
  EXPECT_EQ(value.members[1].position.line, 2);
  EXPECT_EQ(value.members[1].position.column, 2);
  EXPECT_EQ(value.members[1].value.members[0].value.text, "x\n\xc3\xa9\xf0\x9f\x98\x80");
}

TEST(PythonJson, NumbersThatJsonDoesNotHave_KeepTheirSpelling) {
  const std::string text = R"({"a": [NaN, Infinity,-Infinity], "NaN": "Infinity \" NaN", "b":NaN})";
  JsonValue value;
  JsonError error;
  ASSERT_TRUE(ParsePythonJson(text, &value, &error)) << error.problem;
  ASSERT_EQ(value.members.size(), 3u);
  const std::vector<JsonValue>& items = value.members[0].value.items;
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0].type, JsonValue::Type::kNumber);
  EXPECT_EQ(items[0].text, "NaN");
  EXPECT_EQ(items[1].text, "Infinity");
  EXPECT_EQ(items[2].text, "-Infinity");
  EXPECT_EQ(value.members[1].key, "NaN");
  EXPECT_EQ(value.members[1].value.text, "Infinity \" NaN");
  EXPECT_EQ(value.members[2].position.column, static_cast<int>(text.find("\"b\"")) + 1);
  EXPECT_FALSE(ParseJson(text, &value, &error));
}

TEST(PythonJson, WordsThatOnlyBeginSo_AreRefusedWhereTheyStand) {
  for (const char* const text : {"[NaN1]", "[1NaN]", "[-NaN]", "[Infinit]", "[+Infinity]", "[NaN"}) {
    JsonValue value;
    JsonError error;
    EXPECT_FALSE(ParsePythonJson(text, &value, &error)) << text;
  }
}

TEST(Json, AKeyGivenTwiceFarApart_IsRefusedAtTheSecond) {
  std::string text = "{";
  for (int i = 0; i < 100; ++i) text += "\"" + std::to_string(i) + "\":{\"0\":1},";
  JsonValue value;
  JsonError error;
  EXPECT_FALSE(ParseJson(text + "\"7\":1}", &value, &error));
  EXPECT_EQ(error.problem, "7: given twice");
  EXPECT_EQ(error.position.column, static_cast<int>(text.size()) + 1);
}

TEST(Json, TextAfterAZeroByte_IsRefused) {
  JsonValue value;
  JsonError error;
  EXPECT_FALSE(ParseJson(std::string("{}\0{}", 5), &value, &error));
  EXPECT_EQ(error.position.column, 3);
}

TEST(Json, Number_IsKeptAsItIsSpelled) {
  JsonValue value;
  JsonError error;
  ASSERT_TRUE(ParseJson("[18446744073709551616,-0, 1.50e1]", &value, &error)) << error.problem;
  EXPECT_EQ(value.items[0].text, "18446744073709551616");
  EXPECT_EQ(value.items[1].text, "-0");
  EXPECT_EQ(value.items[2].text, "1.50e1");
  EXPECT_EQ(value.items[2].position.column, 27);
}

TEST(Json, DeepNesting_IsRefused) {
  JsonValue value;
  JsonError error;
  EXPECT_TRUE(ParseJson(std::string(16, '[') + std::string(16, ']'), &value, &error));
  EXPECT_FALSE(ParseJson(std::string(17, '[') + std::string(17, ']'), &value, &error));
  EXPECT_FALSE(ParseJson(std::string(100000, '['), &value, &error));
  EXPECT_TRUE(ParseJson("[[[[1]]]]", &value, &error));
}

}  // namespace
}  // namespace geminid::base
