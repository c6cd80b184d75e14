#include "training/models/family.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace geminid::trainer {
namespace {

// Indexed by Family.
constexpr const FamilyTraits* kFamilies[] = {
    &kBertFamily,    &kFalconFamily, &kGemmaFamily,   &kGemma2Family,  &kGemma3Family, &kGpt2Family,
    &kGptNeoxFamily, &kLlamaFamily,  &kMistralFamily, &kMixtralFamily, &kOptFamily,    &kPalmFamily,
    &kPhi3Family,    &kQwen2Family,  &kQwen3Family,   &kT5Family,      &kVitFamily,
};

std::vector<std::string> TypesWithReaders(bool trained) {
  std::vector<std::string> names;
  for (const FamilyTraits* const family : kFamilies) {
    if (trained ? family->trains() : family->read != nullptr) names.push_back(family->name);
  }
  return names;
}

}  // namespace

const FamilyTraits& TraitsOf(Family family) { return *kFamilies[static_cast<size_t>(family)]; }

const char* Name(Family family) { return TraitsOf(family).name; }

const char* Name(Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return "gelu_new";
    case Activation::kRelu:
      return "relu";
    case Activation::kGeluErf:
      return "gelu";
  }
  return "";
}

std::optional<Family> FamilyOfType(const std::string& type) {
  for (size_t i = 0; i < std::size(kFamilies); ++i) {
    if (type == kFamilies[i]->name && kFamilies[i]->read != nullptr) return static_cast<Family>(i);
  }
  return std::nullopt;
}

std::string NamesOfTypes(bool trained) { return absl::StrJoin(TypesWithReaders(trained), ", "); }

absl::StatusOr<Family> ParseFamily(const std::string& name) {
  const std::optional<Family> family = FamilyOfType(name);
  if (family && TraitsOf(*family).trains()) return *family;
  std::vector<std::string> names = TypesWithReaders(/*trained=*/true);
  const std::string last = names.back();
  names.pop_back();
  return absl::InvalidArgumentError(absl::StrCat("there is no model family '", name, "'; use ",
                                                 absl::StrJoin(names, ", "), " or ", last));
}

}  // namespace geminid::trainer
