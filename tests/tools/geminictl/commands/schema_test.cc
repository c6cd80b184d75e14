// Checks the schema against the subcommands' output, and against the page for people.
#include "tools/geminictl/commands/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/tools/geminictl/in_process.h"

namespace geminid::ctl {
namespace {

using base::At;
using base::JsonValue;

using Type = JsonValue::Type;

const JsonValue* Find(const JsonValue& object, const std::string& key) {
  for (const JsonValue::Member& member : object.members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

bool IsOfType(const JsonValue& value, const std::string& type) {
  switch (value.type) {
    case Type::kObject:
      return type == "object";
    case Type::kArray:
      return type == "array";
    case Type::kString:
      return type == "string";
    case Type::kNumber:
      return type == "number" ||
             (type == "integer" && value.text.find_first_of(".eE") == std::string::npos);
    case Type::kBool:
      return type == "boolean";
    case Type::kNull:
      return type == "null";
  }
  return false;
}

// Checks the JSON Schema keywords that our schema uses, and that it names every field. Empty: no
// violation.
std::string Violation(const JsonValue& root, const JsonValue& schema, const JsonValue& value,
                      const std::string& where) {
  if (const JsonValue* reference = Find(schema, "$ref")) {
    const std::string name = reference->text.substr(std::string("#/$defs/").size());
    return Violation(root, At(At(root, "$defs"), name), value, where);
  }
  if (const JsonValue* any = Find(schema, "anyOf")) {
    for (const JsonValue& one : any->items) {
      if (Violation(root, one, value, where).empty()) return "";
    }
    return where + ": none of what it may be";
  }
  if (const JsonValue* words = Find(schema, "enum")) {
    for (const JsonValue& word : words->items) {
      if (word.text == value.text) return "";
    }
    return where + ": '" + value.text + "' is no word of it";
  }
  if (const JsonValue* constant = Find(schema, "const")) {
    return constant->text == value.text ? "" : where + ": another value";
  }
  const JsonValue& types = At(schema, "type");
  bool fits = types.type == Type::kString && IsOfType(value, types.text);
  for (const JsonValue& type : types.items) fits = fits || IsOfType(value, type.text);
  if (!fits) return where + ": another type";
  if (const JsonValue* items = Find(schema, "items")) {
    for (const JsonValue& item : value.items) {
      if (std::string violation = Violation(root, *items, item, where + "[]"); !violation.empty()) {
        return violation;
      }
    }
  }
  if (value.type != Type::kObject) return "";
  const JsonValue* const properties = Find(schema, "properties");
  const JsonValue* const others = Find(schema, "additionalProperties");
  for (const JsonValue::Member& member : value.members) {
    const JsonValue* const of = properties == nullptr ? others : Find(*properties, member.key);
    if (of == nullptr) return where + "." + member.key + ": not in the schema";
    std::string violation = Violation(root, *of, member.value, where + "." + member.key);
    if (!violation.empty()) return violation;
  }
  if (const JsonValue* required = Find(schema, "required")) {
    for (const JsonValue& name : required->items) {
      if (Find(value, name.text) == nullptr) return where + "." + name.text + ": missing";
    }
  }
  return "";
}

std::string ViolationOf(const std::string& subcommand, const std::string& document) {
  const JsonValue schema = base::MustParse(JsonSchema());
  return Violation(schema, At(At(schema, "$defs"), subcommand), base::MustParse(document), "");
}

TEST(JsonSchema, CopyInTheManual_IsCurrent) {
  std::ifstream file(GEMINICTL_SCHEMA_FILE);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), JsonSchema())
      << "write it again: geminictl schema > docs/geminictl.schema.json; a field that went or that "
         "means something else needs a new kSchemaVersion";
}

TEST_F(Geminictl, EveryDocument_IsAsTheSchemaSays) {
  const std::string file = env_.socket() + ".json";
  const auto session = AttachWithChunks();
  MakePlanFor(session.get(), ChunkId{0});
  ASSERT_EQ(RunHere({"trace", "save", "-o", file}).code, 0);
  const std::vector<std::pair<std::string, std::vector<std::string>>> commands = {
      {"status", {"status"}},
      {"top", {"top"}},
      {"ls sessions", {"ls", "sessions"}},
      {"ls chunks", {"ls", "chunks"}},
      {"ls pools", {"ls", "pools"}},
      {"ls jobs", {"ls", "jobs"}},
      {"explain", {"explain", "1/0"}},
      {"config show", {"config", "show"}},
      {"trace show", {"trace", "show", file}},
      {"trace export", {"trace", "export", "--svg", file + ".svg"}},
      {"wait", {"wait", "daemon"}},
      {"version", {"version"}},
      {"doctor", {"doctor"}},
      {"drain", {"drain", "--undo"}},
      {"end", {"end", "demo", "--yes"}},
  };
  for (auto [name, arguments] : commands) {
    arguments.push_back("--json");
    const Outcome outcome = RunHere(arguments);
    EXPECT_EQ(ViolationOf(name, outcome.out), "") << name << ": " << outcome.err;
  }
}

TEST(JsonSchema, Violations_AreFound) {
  EXPECT_EQ(ViolationOf("wait", R"({"schema_version": 1, "waited_seconds": 2.5})"), "");
  EXPECT_NE(ViolationOf("wait", R"({"schema_version": 2, "waited_seconds": 2.5})"), "");
  EXPECT_NE(ViolationOf("wait", R"({"schema_version": 1})"), "");
  EXPECT_NE(ViolationOf("wait", R"({"schema_version": 1, "waited_seconds": "2"})"), "");
  EXPECT_NE(ViolationOf("wait", R"({"schema_version": 1, "waited_seconds": 2, "more": 1})"), "");
}

}  // namespace
}  // namespace geminid::ctl
