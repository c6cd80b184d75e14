// Reads values from JSON that a program has written. A missing value fails the test.
#ifndef GEMINID_TESTS_BASE_JSON_VALUES_H_
#define GEMINID_TESTS_BASE_JSON_VALUES_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace geminid::base {

inline JsonValue MustParse(const std::string& text) {
  JsonValue value;
  JsonError error;
  EXPECT_TRUE(ParseJson(text, &value, &error)) << error.problem << " in " << text;
  return value;
}

inline const JsonValue& At(const JsonValue& object, const std::string& key) {
  static const JsonValue kMissing;
  for (const JsonValue::Member& member : object.members) {
    if (member.key == key) return member.value;
  }
  ADD_FAILURE() << "no key " << key;
  return kMissing;
}

inline uint64_t Number(const JsonValue& object, const std::string& key) {
  return std::stoull(At(object, key).text);
}

inline std::vector<std::string> Texts(const JsonValue& array) {
  std::vector<std::string> texts;
  for (const JsonValue& item : array.items) texts.push_back(item.text);
  return texts;
}

}  // namespace geminid::base

#endif  // GEMINID_TESTS_BASE_JSON_VALUES_H_
