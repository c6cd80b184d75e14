#include "client/c_api/optimizer.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "base/status_macros.h"
#include "client/c_api/arguments.h"

namespace geminid::c_api {
namespace {

// Which fields of the struct each optimizer has, stated once for both directions. `move` gets an
// option and the field of the same name.
template <typename Move>
void Match(zero::AdamWOptions& o, geminid_optimizer& c, const Move& move) {
  move(o.beta1, c.beta1), move(o.beta2, c.beta2), move(o.epsilon, c.epsilon);
  move(o.weight_decay, c.weight_decay);
}
template <typename Move>
void Match(zero::AdamOptions& o, geminid_optimizer& c, const Move& move) {
  move(o.beta1, c.beta1), move(o.beta2, c.beta2), move(o.epsilon, c.epsilon);
  move(o.weight_decay, c.weight_decay);
}
template <typename Move>
void Match(zero::LambOptions& o, geminid_optimizer& c, const Move& move) {
  move(o.beta1, c.beta1), move(o.beta2, c.beta2), move(o.epsilon, c.epsilon);
  move(o.weight_decay, c.weight_decay), move(o.max_grad_norm, c.max_grad_norm);
  move(o.decoupled, c.decoupled), move(o.bias_correction, c.bias_correction);
  move(o.grad_averaging, c.grad_averaging), move(o.always_adapt, c.always_adapt);
}
template <typename Move>
void Match(zero::LarsOptions& o, geminid_optimizer& c, const Move& move) {
  move(o.momentum, c.momentum), move(o.weight_decay, c.weight_decay);
  move(o.trust_coefficient, c.trust_coefficient), move(o.trust_limit, c.trust_limit);
  move(o.epsilon, c.epsilon);
}
template <typename Move>
void Match(zero::SgdOptions& o, geminid_optimizer& c, const Move& move) {
  move(o.momentum, c.momentum), move(o.dampening, c.dampening);
  move(o.weight_decay, c.weight_decay), move(o.nesterov, c.nesterov);
  move(o.decay_after_momentum, c.decay_after_momentum);
}
template <typename Move>
void Match(zero::AdagradOptions& o, geminid_optimizer& c, const Move& move) {
  move(o.rate_decay, c.rate_decay), move(o.epsilon, c.epsilon);
  move(o.weight_decay, c.weight_decay);
}
template <typename Move>
void Match(zero::LionOptions& o, geminid_optimizer& c, const Move& move) {
  move(o.beta1, c.beta1), move(o.beta2, c.beta2), move(o.weight_decay, c.weight_decay);
}
template <typename Move>
void Match(zero::AdafactorOptions& o, geminid_optimizer& c, const Move& move) {
  move(o.epsilon1, c.epsilon1), move(o.epsilon2, c.epsilon2);
  move(o.clip_threshold, c.clip_threshold), move(o.decay_exponent, c.decay_exponent);
  move(o.beta1, c.beta1), move(o.weight_decay, c.weight_decay);
  move(o.relative_step, c.relative_step), move(o.warmup_init, c.warmup_init);
  move(o.scale_parameter, c.scale_parameter);
}
template <typename Move>
void Match(zero::CameOptions& o, geminid_optimizer& c, const Move& move) {
  move(o.beta1, c.beta1), move(o.beta2, c.beta2), move(o.beta3, c.beta3);
  move(o.epsilon1, c.epsilon1), move(o.epsilon2, c.epsilon2);
  move(o.clip_threshold, c.clip_threshold), move(o.weight_decay, c.weight_decay);
}

template <typename Move>
void Match(zero::MuonOptions& o, geminid_optimizer& c, const Move& move) {
  move(o.momentum, c.momentum), move(o.nesterov, c.nesterov), move(o.rate, c.muon_rate);
  move(o.beta1, c.beta1), move(o.beta2, c.beta2), move(o.epsilon, c.epsilon);
  move(o.weight_decay, c.weight_decay);
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
