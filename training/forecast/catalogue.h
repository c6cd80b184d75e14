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
  const char* source;  // where the numbers come from
};

// gpt2, opt, llama, gpt3 and palm, each from small to large; then the models of geminid-train that
// have names of their own.
std::span<const CatalogueEntry> Catalogue();

// NOT_FOUND, listing the names.
absl::StatusOr<Model> FindModel(const std::string& name);

// The model that geminid-train trains under this name. Some of its names are those of published
// models, with their shape but another vocabulary. nullptr if it has no model of that name.
const Model* FindTrainerModel(const std::string& name);

// A family of models. Members differ in depth and width alone.
struct Family {
  const char* name;
  Model base;  // everything but layers, hidden, heads, kv_heads and intermediate
  const char* description;
};
std::span<const Family> Families();

// nullptr if there is no family of that name.
const Family* FindFamily(const std::string& name);

// The member with a given shape. heads 0: as DefaultHeads.
absl::StatusOr<Model> MakeMember(const Family& family, std::uint64_t layers, std::uint64_t hidden,
                                 std::uint64_t heads);

// Heads of 128 columns if 128 divides `hidden`, else of 64, else of the largest divisor below 128.
// If `hidden` is below 32, one head of all columns. INVALID_ARGUMENT if only heads of fewer than 32
// columns divide `hidden`.
absl::StatusOr<std::uint64_t> DefaultHeads(std::uint64_t hidden);

// The member of width 64 `step`. It is 128 times as wide as deep, like GPT-3 175B and LLaMA-7B,
// which is near the least loss for a given size (arXiv:2001.08361, figure 5). The number of
// parameters increases with `step`.
absl::StatusOr<Model> MemberOfStep(const Family& family, std::uint64_t step);
// 22656 wide and 177 deep, 1.09e12 parameters. The next member does not fit into 2^40 elements, the
// limit of one layout.
inline constexpr std::uint64_t kMaxFamilyStep = 354;

// The member, by steps, whose number of parameters is nearest to `parameters`.
absl::StatusOr<Model> MemberOfSize(const Family& family, std::uint64_t parameters);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_CATALOGUE_H_
