// Reads the keys of config.json one by one and remembers the first that is wrong.
#ifndef GEMINID_TRAINING_MODELS_CONFIG_KEYS_H_
#define GEMINID_TRAINING_MODELS_CONFIG_KEYS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/json.h"

namespace geminid::trainer {

// A key that is null counts as absent. What is read after the first wrong key means nothing.
class ConfigKeys {
 public:
  // `object` outlives this.
  explicit ConfigKeys(const base::JsonValue& object) : object_(object) {}

  bool Has(const char* key) const { return Find(key) != nullptr; }
  // nullptr: absent.
  const base::JsonValue* Find(const char* key) const;
  // Absent: `otherwise`, or an error if there is none.
  std::uint64_t Count(const char* key, std::optional<std::uint64_t> otherwise = std::nullopt);
  // A whole number or an array of them, that may be null; absent: `otherwise`.
  std::vector<std::uint64_t> Counts(const char* key, std::vector<std::uint64_t> otherwise);
  bool Flag(const char* key, bool otherwise);
  double Real(const char* key, double otherwise);
  std::string Word(const char* key, const std::optional<std::string>& otherwise = std::nullopt);
  // Of an array of strings; empty if it is absent or has none.
  std::string FirstWord(const char* key);
  // How many members an object has; 0 if it is absent.
  std::uint64_t Members(const char* key);

  void Fail(std::string problem);
  void Require(bool is_so, const char* problem) {
    if (!is_so) Fail(problem);
  }
  // INVALID_ARGUMENT naming the first key that was wrong.
  absl::Status status() const;

 private:
  std::uint64_t CountIn(const char* key, const base::JsonValue& value);
  void FailType(const char* key, const char* what, const base::JsonValue& value);
  void FailAbsent(const char* key);

  const base::JsonValue& object_;
  std::string problem_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_CONFIG_KEYS_H_
