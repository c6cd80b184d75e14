#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/json.h"

namespace geminid::base {
namespace {

TEST(JsonWriter, OfNestedValues_WritesThemInOrder) {
  JsonWriter json;
  json.BeginObject().Key("a").BeginArray().Value(uint64_t{1}).Value(0.1).EndArray();
  json.Key("b").BeginObject().EndObject().Key("c").Value(true).EndObject();
  EXPECT_EQ(json.text(),
            "{\n  \"a\": [\n    1,\n    0.10000000000000001\n  ],\n  \"b\": {},\n  \"c\": true\n}");
}

TEST(JsonWriter, OfTextThatRewritesATerminal_Escapes) {
  JsonWriter json;
  json.Value("a\x1b\x7f\xc2\x9b\xe2\x80\xae größe");
  EXPECT_EQ(json.text(), "\"a\\u001b\\u007f\\u009b\\u202e größe\"");
}

// As a file's name may be.
TEST(JsonWriter, OfBytesThatAreNotUtf8_WritesTheReplacementCharacterForEach) {
  JsonWriter json;
  json.BeginObject().Key("\xff").Value("na\xefve \xe2\x82 \xef\xbf\xbd").EndObject();
  EXPECT_EQ(json.text(),
            "{\n  \"\xef\xbf\xbd\": \"na\xef\xbf\xbdve \xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\"\n}");
  JsonValue read;
  JsonError error;
  EXPECT_TRUE(ParseJson(json.text(), &read, &error)) << error.problem;
}

TEST(JsonWriter, OfTextThatNeedsIt_Escapes) {
  JsonWriter json;
  json.Value("a\"\\\n\x01\xc3\xa9");
  EXPECT_EQ(json.text(), "\"a\\\"\\\\\\u000a\\u0001\xc3\xa9\"");
}

TEST(JsonWriter, OfNumbersJsonDoesNotKnow_WritesNull) {
  JsonWriter json;
  json.BeginArray().Value(std::numeric_limits<double>::infinity());
  json.Value(std::numeric_limits<double>::quiet_NaN()).EndArray();
  EXPECT_EQ(json.text(), "[\n  null,\n  null\n]");
}

}  // namespace
}  // namespace geminid::base
