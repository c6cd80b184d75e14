#include "client/c_api/optimizer.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/zero/options/hyperparameters.h"

namespace geminid::c_api {
namespace {

// Calls move(option, field) for each field of the struct that the optimizer has.
template <typename Options, typename Move>
void Match(Options& o, geminid_optimizer& c, const Move& move) {
#define GEMINID_MOVE(name) \
  if constexpr (requires { o.name; }) move(o.name, c.name);
  GEMINID_HYPERPARAMETERS(GEMINID_MOVE)
#undef GEMINID_MOVE
  if constexpr (requires { o.rate; }) move(o.rate, c.muon_rate);
}

struct ToC {
  void operator()(double option, double& field) const { field = option; }
  void operator()(zero::MuonRate option, int32_t& field) const {
    field = static_cast<int32_t>(option);
  }
  void operator()(bool option, int32_t& field) const { field = option ? 1 : 0; }
};
struct FromC {
  void operator()(double& option, double field) const { option = field; }
  void operator()(bool& option, int32_t field) const { option = field != 0; }
  void operator()(zero::MuonRate& option, int32_t field) const {
    option = static_cast<zero::MuonRate>(field);
  }
};

template <size_t kKind = 0>
std::optional<zero::Optimizer> OfKind(int32_t kind) {
  if constexpr (kKind < std::variant_size_v<zero::Optimizer>) {
    if (kind != kKind) return OfKind<kKind + 1>(kind);
    return zero::Optimizer(std::in_place_index<kKind>);
  }
  return std::nullopt;
}

// Headers without Muon had all fields before `muon_rate`; fields that they lack are 0.
constexpr Growth<geminid_optimizer> kGrowthOfOptimizer = {
    .least = offsetof(geminid_optimizer, muon_rate)};

}  // namespace

absl::StatusOr<zero::Optimizer> ToOptimizer(const geminid_optimizer* given) {
  if (given == nullptr) return zero::Optimizer();
  GEMINID_ASSIGN_OR_RETURN(geminid_optimizer read, Read(given, "optimizer", kGrowthOfOptimizer));
  std::optional<zero::Optimizer> optimizer = OfKind(read.kind);
  if (!optimizer.has_value()) {
    return CheckNumber(read.kind, GEMINID_ADAMW, GEMINID_MUON, "the optimizer's kind");
  }
  if (read.kind == GEMINID_MUON) {
    GEMINID_RETURN_IF_ERROR(CheckNumber(read.muon_rate, GEMINID_MUON_AS_ADAMW,
                                        GEMINID_MUON_ORIGINAL, "the optimizer's muon_rate"));
  }
  std::visit([&](auto& options) { Match(options, read, FromC()); }, *optimizer);
  return *optimizer;
}

}  // namespace geminid::c_api

void geminid_optimizer_init(geminid_optimizer* optimizer, size_t struct_size, int32_t kind) {
  using namespace geminid::c_api;
  geminid_optimizer filled = {};
  filled.kind = kind;
  if (auto defaults = OfKind(kind); defaults.has_value()) {
    std::visit([&](auto& options) { Match(options, filled, ToC()); }, *defaults);
  }
  Init(optimizer, struct_size, filled);
}
