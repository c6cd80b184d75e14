#ifndef GEMINID_KERNELS_OPTIMIZERS_OPTIMIZER_H_
#define GEMINID_KERNELS_OPTIMIZERS_OPTIMIZER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/optimizers/adafactor/adafactor.h"
#include "kernels/optimizers/adagrad/adagrad.h"
#include "kernels/optimizers/adamw/adamw.h"
#include "kernels/optimizers/came/came.h"
#include "kernels/optimizers/lamb/lamb.h"
#include "kernels/optimizers/lars/lars.h"
#include "kernels/optimizers/lion/lion.h"
#include "kernels/optimizers/muon/muon.h"
#include "kernels/optimizers/sgd/sgd.h"
#include "kernels/runtime/common/status.h"

// The kind of an optimizer, its hyperparameters, and the state that it needs. For a step on shards
// see kernels/optimizers/sharded_step.h.
namespace geminid::kernels {

enum class OptimizerKind : uint8_t {
  kAdamW,
  kAdam,  // kernels/optimizers/adam
  kLamb,
  kLars,
  kSgd,
  kAdagrad,
  kLion,
  kAdafactor,
  kCame,
  kMuon,
};
inline constexpr OptimizerKind kAllOptimizerKinds[] = {
    OptimizerKind::kAdamW, OptimizerKind::kAdam,    OptimizerKind::kLamb, OptimizerKind::kLars,
    OptimizerKind::kSgd,   OptimizerKind::kAdagrad, OptimizerKind::kLion, OptimizerKind::kAdafactor,
    OptimizerKind::kCame,  OptimizerKind::kMuon,
};

// "adamw", "adam", "lamb", "lars", "sgd", "adagrad", "lion", "adafactor", "came", "muon".
std::string_view OptimizerName(OptimizerKind kind);
// Nothing for any other name.
std::optional<OptimizerKind> ParseOptimizerKind(std::string_view name);
// All names, for messages: "adamw, adam, ...".
std::string OptimizerNames();

// The options of `kind` count; the others are ignored. learning_rate, step, grad_scale and, for
// LAMB, gradient_norm are set by each step.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  AdamWOptions adamw;  // kAdamW and kAdam
  LambOptions lamb;
  LarsOptions lars;
  SgdOptions sgd;
  AdagradOptions adagrad;
  LionOptions lion;
  AdafactorOptions adafactor;
  CameOptions came;
  MuonOptions muon;
};

// kInvalidParameter unless every hyperparameter of the kind is in its range.
Status CheckOptimizerOptions(const OptimizerOptions& options);

// The learning rate and the weight decay among the kind's options.
double LearningRate(const OptimizerOptions& options);

// Full-size fp32 arrays of state beside the weights: 0 to kMaxStateArrays. For AdamW and Adam these
// are exp_avg and exp_avg_sq; each optimizer's header names its own.
int StateArrays(const OptimizerOptions& options);
// The same for a tensor that is stepped as a matrix: one for Muon, whose other tensors have two.
int MatrixStateArrays(const OptimizerOptions& options);

// fp32 numbers of state besides those arrays for a tensor of this shape. Every rank stores all of
// them. 0 except for Adafactor and CAME.
uint64_t FactorCount(const OptimizerOptions& options, const FactorShape& shape);

// Whether a step needs sums over whole tensors before it can change the first parameter.
bool NeedsSums(OptimizerKind kind);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_OPTIMIZER_H_
