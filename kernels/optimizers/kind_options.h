#ifndef GEMINID_KERNELS_OPTIMIZERS_KIND_OPTIONS_H_
#define GEMINID_KERNELS_OPTIMIZERS_KIND_OPTIONS_H_

#include "kernels/optimizers/optimizer.h"

// Access to the options of one kind of optimizer.
namespace geminid::kernels {

// False for values outside the enumeration, which callers may pass.
inline bool IsKnown(OptimizerKind kind) { return kind <= OptimizerKind::kMuon; }

// Calls `body` with the options of options.kind, which all have learning_rate, weight_decay, step
// and grad_scale. `Options` is OptimizerOptions, const or not.
template <class Options, class Body>
auto VisitOptions(Options& options, Body body) {
  switch (options.kind) {
    case OptimizerKind::kAdamW:
    case OptimizerKind::kAdam:
      break;
    case OptimizerKind::kLamb:
      return body(options.lamb);
    case OptimizerKind::kLars:
      return body(options.lars);
    case OptimizerKind::kSgd:
      return body(options.sgd);
    case OptimizerKind::kAdagrad:
      return body(options.adagrad);
    case OptimizerKind::kLion:
      return body(options.lion);
    case OptimizerKind::kAdafactor:
      return body(options.adafactor);
    case OptimizerKind::kCame:
      return body(options.came);
    case OptimizerKind::kMuon:
      return body(options.muon);
  }
  return body(options.adamw);
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_KIND_OPTIONS_H_
