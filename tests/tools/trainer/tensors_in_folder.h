// Reads the tensors of a folder of safetensors files without the project's own code.
#ifndef GEMINID_TESTS_TOOLS_TRAINER_TENSORS_IN_FOLDER_H_
#define GEMINID_TESTS_TOOLS_TRAINER_TENSORS_IN_FOLDER_H_

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/training/models/reference_model.h"

namespace geminid::trainer {

inline std::string FileText(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Decodes an element of type F32, BF16 or F16.
inline double ElementOf(const std::string& type, const char* data) {
  if (type == "F32") {
    float value;
    std::memcpy(&value, data, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data, sizeof(bits));
  if (type == "BF16") return std::bit_cast<float>(uint32_t{bits} << 16);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

// The tensors of all files in the folder whose names begin with `prefix`.
inline NamedTensors TensorsInFolder(const std::string& folder,
                                    const std::string& prefix = "model") {
  NamedTensors tensors;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(prefix) || !name.ends_with(".safetensors")) continue;
    const std::string file = FileText(entry.path());
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof(length));
    const auto header = nlohmann::json::parse(file.substr(8, length));
    for (const auto& [key, value] : header.items()) {
      if (key == "__metadata__") continue;
      const std::string type = value["dtype"];
      const size_t size = type == "F32" ? 4 : 2;
      for (size_t at = value["data_offsets"][0]; at < value["data_offsets"][1]; at += size) {
        tensors[key].push_back(ElementOf(type, file.data() + 8 + length + at));
      }
    }
  }
  return tensors;
}

// Weights of two runs, the second one divided over ranks.
inline void ExpectNearTensors(const NamedTensors& got, const NamedTensors& expected,
                              double tolerance = 1e-6) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(got.contains(name)) << name;
    ASSERT_EQ(got.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(got.at(name)[i], values[i], tolerance) << name << '[' << i << ']';
    }
  }
}

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TOOLS_TRAINER_TENSORS_IN_FOLDER_H_
