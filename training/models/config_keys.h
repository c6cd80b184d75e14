// Reads the keys of a config.json one by one and stores the first error.
#ifndef GEMINID_TRAINING_MODELS_CONFIG_KEYS_H_
#define GEMINID_TRAINING_MODELS_CONFIG_KEYS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/json.h"

namespace geminid::trainer {

// A key whose value is null counts as absent. Values that are read after the first error are
// meaningless.
class ConfigKeys {
 public:
  // `object` outlives this object.
  explicit ConfigKeys(const base::JsonValue& object) : object_(object) {}

  bool Has(const char* key) const { return Find(key) != nullptr; }
  // nullptr: absent.
  const base::JsonValue* Find(const char* key) const;
  // An absent key gives `otherwise`, or an error if `otherwise` is unset.
  std::uint64_t Count(const char* key, std::optional<std::uint64_t> otherwise = std::nullopt);
  // Reads a whole number, an array of whole numbers, or null: an empty result. Absent: `otherwise`.
  std::vector<std::uint64_t> Counts(const char* key, std::vector<std::uint64_t> otherwise);
  bool Flag(const char* key, bool otherwise);
  double Real(const char* key, double otherwise);
  std::string Word(const char* key, const std::optional<std::string>& otherwise = std::nullopt);
  // The first word of an array of strings; empty if the array is absent or has none.
  std::string FirstWord(const char* key);
  // The number of members of an object; 0 if the object is absent.
  std::uint64_t Members(const char* key);

  void Fail(std::string problem);
  void Require(bool is_so, const char* problem) {
    if (!is_so) Fail(problem);
  }
  // INVALID_ARGUMENT names the first key with an error.
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
