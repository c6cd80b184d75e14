#include "kernels/optimizers/optimizer.h"

#include "kernels/optimizers/adam/adam_rule.h"
#include "kernels/optimizers/kind_options.h"

namespace geminid::kernels {
namespace {

Status Check(OptimizerKind kind, const AdamWOptions& o) {
  AdamRule unused;
  return kind == OptimizerKind::kAdam ? MakeRule(o, &unused) : CheckAdamWOptions(o);
}
Status Check(OptimizerKind, const LambOptions& o) { return CheckLambOptions(o); }
Status Check(OptimizerKind, const LarsOptions& o) { return CheckLarsOptions(o); }
Status Check(OptimizerKind, const SgdOptions& o) { return CheckSgdOptions(o); }
Status Check(OptimizerKind, const AdagradOptions& o) { return CheckAdagradOptions(o); }
Status Check(OptimizerKind, const LionOptions& o) { return CheckLionOptions(o); }
Status Check(OptimizerKind, const AdafactorOptions& o) { return CheckAdafactorOptions(o); }
Status Check(OptimizerKind, const CameOptions& o) { return CheckCameOptions(o); }
Status Check(OptimizerKind, const MuonOptions& o) { return CheckMuonOptions(o); }

int States(const AdamWOptions&) { return 2; }
int States(const LambOptions&) { return 2; }
int States(const LarsOptions&) { return 1; }
int States(const SgdOptions& o) { return SgdStateArrays(o); }
int States(const AdagradOptions&) { return 1; }
int States(const LionOptions&) { return 1; }
int States(const AdafactorOptions& o) { return AdafactorStateArrays(o); }
int States(const CameOptions&) { return 1; }
int States(const MuonOptions&) { return 2; }

}  // namespace

std::string_view OptimizerName(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kAdamW:
      return "adamw";
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kLamb:
      return "lamb";
    case OptimizerKind::kLars:
      return "lars";
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kAdagrad:
      return "adagrad";
    case OptimizerKind::kLion:
      return "lion";
    case OptimizerKind::kAdafactor:
      return "adafactor";
    case OptimizerKind::kCame:
      return "came";
    case OptimizerKind::kMuon:
      return "muon";
  }
  return "unknown";
}

std::optional<OptimizerKind> ParseOptimizerKind(std::string_view name) {
  for (const OptimizerKind kind : kAllOptimizerKinds) {
    if (OptimizerName(kind) == name) return kind;
  }
  return std::nullopt;
}

std::string OptimizerNames() {
  std::string names;
  for (const OptimizerKind kind : kAllOptimizerKinds) {
    if (!names.empty()) names += ", ";
    names += OptimizerName(kind);
  }
  return names;
}

Status CheckOptimizerOptions(const OptimizerOptions& options) {
  if (!IsKnown(options.kind)) return Status::kUnsupported;
  return VisitOptions(options, [&](const auto& o) { return Check(options.kind, o); });
}

double LearningRate(const OptimizerOptions& options) {
  return VisitOptions(options, [](const auto& o) { return o.learning_rate; });
}

int StateArrays(const OptimizerOptions& options) {
  return VisitOptions(options, [](const auto& o) { return States(o); });
}

int MatrixStateArrays(const OptimizerOptions& options) {
  return options.kind == OptimizerKind::kMuon ? 1 : StateArrays(options);
}

uint64_t FactorCount(const OptimizerOptions& options, const FactorShape& shape) {
  if (options.kind == OptimizerKind::kAdafactor) return shape.Count();
  return options.kind == OptimizerKind::kCame ? CameFactorCount(shape) : 0;
}

bool NeedsSums(OptimizerKind kind) {
  return kind == OptimizerKind::kLamb || kind == OptimizerKind::kLars ||
         kind == OptimizerKind::kAdafactor || kind == OptimizerKind::kCame;
}

}  // namespace geminid::kernels
