// The optimizers and their hyperparameters. The learning rate is an input of each step.
//
// w: weight, g: gradient (unscaled and clipped), lr: learning rate, t: number of the update, from
// 1. Bytes of state are those of fp32 arrays; with bf16 as Options::state_type they are half.
#ifndef GEMINID_OPTIMIZER_H_
#define GEMINID_OPTIMIZER_H_

#include <cstddef>
#include <variant>

#include "absl/status/status.h"
#include "geminid/data_type.h"
#include "geminid/export.h"

namespace geminid::zero {

// Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101). 8 bytes of state per
// parameter besides the weight.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
};

// Adam with the decay added to the gradient (Kingma and Ba, arXiv 1412.6980). 8 bytes.
struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

// Adam's update u scaled per tensor by ||w|| / ||u|| (You et al., arXiv 1904.00962). 8 bytes.
struct LambOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.01;
  bool decoupled = true;  // true: the decay is added to u; false: to g
  bool bias_correction = true;
  bool grad_averaging = true;  // the factor of g in the first moment: 1 - beta1; false: 1
  bool always_adapt = false;   // adapts tensors without decay too (NVLAMB)
  double max_grad_norm = 1;    // of all gradients, after clipping; 0: no limit
};

// Momentum scaled per tensor by ||w|| / ||g|| (You et al., arXiv 1708.03888). 4 bytes.
struct LarsOptions {
  double momentum = 0.9;
  double weight_decay = 0;
  double trust_coefficient = 0.001;
  double trust_limit = 50;  // the largest scale
  double epsilon = 0;
};

// Stochastic gradient descent. 4 bytes; none without momentum.
struct SgdOptions {
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;              // needs momentum and no dampening
  bool decay_after_momentum = false;  // true: the decay is added to the step; false: to g
};

// Duchi et al., JMLR 12 (2011). 4 bytes.
struct AdagradOptions {
  double rate_decay = 0;  // the rate is lr / (1 + (t - 1) rate_decay)
  double epsilon = 1e-10;
  double weight_decay = 0;
};

// The sign of a momentum (Chen et al., arXiv 2302.06675). 4 bytes.
struct LionOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
};

// Second moments by row and column (Shazeer and Stern, arXiv 1804.04235). No bytes per parameter (4
// with beta1), and 8 per row and column of each matrix.
struct AdafactorOptions {
  double epsilon1 = 1e-30;    // added to g^2
  double epsilon2 = 1e-3;     // the least RMS(w) for scale_parameter
  double clip_threshold = 1;  // limit of the update's RMS
  double decay_exponent = 0.8;
  double beta1 = 0;
  double weight_decay = 0;
  bool relative_step = true;    // the rate is lr min(1e-2, 1 / sqrt(t)), so lr is usually 1
  bool warmup_init = false;     // with relative_step: the rate is at most lr 1e-6 t
  bool scale_parameter = true;  // multiplies the rate by max(epsilon2, RMS(w))
};

// Adafactor with momentum and a confidence in it (Luo et al., arXiv 2307.02047). 4 bytes, and 16
// per row and column of each matrix.
struct CameOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double beta3 = 0.9999;
  double epsilon1 = 1e-30;
  double epsilon2 = 1e-16;
  double clip_threshold = 1;
  double weight_decay = 0;
};

// The factor of the learning rate that Muon uses for a matrix of r rows and c columns.
enum class MuonRate {
  kAsAdamW,   // 0.2 sqrt(max(r, c)): one learning rate suits matrices and AdamW's parameters
  kOriginal,  // sqrt(max(1, r / c)), for weights that are stored as [outputs, inputs]
};

// For parameters with Parameter::orthogonal: momentum, made orthogonal by five Newton-Schulz steps
// in bf16 (Jordan et al., "Muon", 2024; Liu et al., arXiv 2502.16982). 4 bytes. All others: AdamW,
// 8 bytes. A group's beta1 is the momentum of its orthogonal parameters.
struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  MuonRate rate = MuonRate::kAsAdamW;
  double weight_decay = 0.1;  // of all parameters
  double beta1 = 0.9;         // of AdamW, like the two below
  double beta2 = 0.95;
  double epsilon = 1e-8;
};

using Optimizer =
    std::variant<AdamWOptions, AdamOptions, LambOptions, LarsOptions, SgdOptions, AdagradOptions,
                 LionOptions, AdafactorOptions, CameOptions, MuonOptions>;

// "adamw", "adam", "lamb", "lars", "sgd", "adagrad", "lion", "adafactor", "came", "muon", in the
// order of the variant.
GEMINID_EXPORT const char* Name(const Optimizer& optimizer);

// Whether a step first needs sums over whole tensors, for which the ranks communicate.
GEMINID_EXPORT bool NeedsSums(const Optimizer& optimizer);

// INVALID_ARGUMENT names a hyperparameter that is out of its range, its value and that range.
GEMINID_EXPORT absl::Status CheckOptimizer(const Optimizer& optimizer);

// INVALID_ARGUMENT if the optimizer's arrays cannot have this type (Options::state_type): other
// types than fp32 and bf16, or bf16 for an optimizer without arrays.
GEMINID_EXPORT absl::Status CheckStateType(const Optimizer& optimizer, DataType type);

}  // namespace geminid::zero

#endif  // GEMINID_OPTIMIZER_H_
