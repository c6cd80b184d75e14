// Published models by name, and families of models whose size can be chosen.
#ifndef GEMINID_TRAINING_FORECAST_CATALOGUE_H_
#define GEMINID_TRAINING_FORECAST_CATALOGUE_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "training/forecast/model.h"

namespace geminid::forecast {

struct CatalogueEntry {
  Model model;
  const char* source;  // where the numbers are from
};

// gpt2, opt, llama, gpt3 and palm, each from small to large; then those of geminid-train that have
// names of their own.
std::span<const CatalogueEntry> Catalogue();

// NOT_FOUND listing the names.
absl::StatusOr<Model> FindModel(const std::string& name);

// What geminid-train trains by this name: some of its names are those of published models, whose
// shape they have with another vocabulary. nullptr if it knows none.
const Model* TrainersOwn(const std::string& name);

// Members differ in depth and width alone.
struct Family {
  const char* name;
  Model base;  // everything but layers, hidden, heads, kv_heads and intermediate
  const char* description;
};
std::span<const Family> Families();

// nullptr if there is none of that name.
const Family* FindFamily(const std::string& name);

// A member by its shape. heads 0: those of DefaultHeads.
absl::StatusOr<Model> MakeMember(const Family& family, std::uint64_t layers, std::uint64_t hidden,
                                 std::uint64_t heads);

// Heads of 128 columns if that divides `hidden`, else of 64, else of the most below 128 that do; of
// all columns where there are fewer than 32. INVALID_ARGUMENT if only heads of fewer than 32 would
// divide.
absl::StatusOr<std::uint64_t> DefaultHeads(std::uint64_t hidden);

// The member of width 64 `step`: 128 times as wide as deep, which is what GPT-3 175B and LLaMA-7B
// are and near where loss is least for a given size (arXiv:2001.08361, figure 5). Parameters
// increase with `step`.
absl::StatusOr<Model> MemberOfStep(const Family& family, std::uint64_t step);
// 22656 wide and 177 deep, 1.09e12 parameters: the next does not fit into 2^40 elements, which is
// what one layout takes.
inline constexpr std::uint64_t kMaxFamilyStep = 354;

// The member by steps whose number of parameters is nearest.
absl::StatusOr<Model> MemberOfSize(const Family& family, std::uint64_t parameters);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_CATALOGUE_H_
